"""The models of bench/*.toml in PyTorch, as its users write them: for pytorch_step.py and compare_pytorch_gpu.py."""
import math


def build_model(c):
    """Of a config.json. forward(ids [b, t]) gives logits [b, t, vocabulary]."""
    return (gpt2 if c["model_type"] == "gpt2" else llama)(c)


def attention(q, k, v):
    """Causal, of [b, heads, t, e]; fused where this PyTorch has it. Fewer heads of k and v stand for several of q."""
    import torch
    from torch.nn import functional as F

    if k.shape[1] != q.shape[1]:
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        k, v = (z.repeat_interleave(q.shape[1] // z.shape[1], 1) for z in (k, v))
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    s = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return s.masked_fill(mask, float("-inf")).softmax(-1) @ v


def gpt2(c):
    from torch import nn
    from torch.nn import functional as F

    d, h = c["n_embd"], c["n_head"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (z.view(b, t, h, d // h).transpose(1, 2) for z in self.qkv(self.n1(x)).split(d, -1))
            x = x + self.out(attention(q, k, v).transpose(1, 2).reshape(b, t, d))
            return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(c["vocab_size"], d), nn.Embedding(c["n_positions"], d)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(c["n_layer"])), nn.LayerNorm(d)

        def forward(self, ids):
            x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
            for b in self.blocks: x = b(x)
            return F.linear(self.norm(x), self.tok.weight)

    return Model()


def llama(c):
    import torch
    from torch import nn
    from torch.nn import functional as F

    d, h, g, e, f = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["intermediate_size"]
    eps = c["rms_norm_eps"]

    class Rms(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(d))

        def forward(self, x):
            wide = x.float()
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * self.w

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = Rms(), Rms()
            self.qkv, self.out = nn.Linear(d, (h + 2 * g) * e, bias=False), nn.Linear(h * e, d, bias=False)
            self.up, self.down = nn.Linear(d, 2 * f, bias=False), nn.Linear(f, d, bias=False)

        def forward(self, x, cos, sin):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.n1(x)).split([h * e, g * e, g * e], -1)
            q, k, v = (z.view(b, t, -1, e).transpose(1, 2) for z in (q, k, v))
            turn = lambda z: (z * cos + torch.cat([-z[..., e // 2:], z[..., : e // 2]], -1) * sin).to(z.dtype)
            x = x + self.out(attention(turn(q), turn(k), v).transpose(1, 2).reshape(b, t, h * e))
            gate, up = self.up(self.n2(x)).split(f, -1)
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.head = nn.Embedding(c["vocab_size"], d), nn.Linear(d, c["vocab_size"], bias=False)
            if c["tie_word_embeddings"]: self.head.weight = self.tok.weight
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(c["num_hidden_layers"])), Rms()

        def forward(self, ids):
            t = torch.arange(ids.shape[1], device=ids.device).float()
            angle = torch.outer(t, c["rope_theta"] ** (-torch.arange(0, e, 2, device=ids.device).float() / e))
            angle = torch.cat([angle, angle], -1)
            x = self.tok(ids)
            for b in self.blocks: x = b(x, angle.cos(), angle.sin())
            return self.head(self.norm(x))

    return Model()


def add_lora(model, rank, alpha=None):
    """Freezes the model and puts an adapter beside every Linear of its blocks (Hu et al. 2021), in f32."""
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, self.scale = base, (alpha or 2 * rank) / rank
            self.a, self.b = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)
            nn.init.normal_(self.b.weight, std=0.02)  # as after some steps: zeros might be taken for less work

        def forward(self, x):
            return self.base(x) + self.scale * self.b(self.a(x))

    for p in model.parameters(): p.requires_grad_(False)
    for block in model.blocks:
        for name, module in list(block.named_children()):
            if isinstance(module, nn.Linear): setattr(block, name, Adapted(module))
    return model
