#!/usr/bin/env python3
"""Times training steps of recipes in PyTorch on a GPU, beside `weft bench step` in the same run.

    python3 bench/compare_pytorch_gpu.py [--weft build/cuda/weft] [--iters 10] [RECIPE ...]

Models, batch, sequence length and micro-batch are read from the recipes (bench/gpu-*.toml). One step: forward,
cross-entropy, backward, global-norm clipping, AdamW. PyTorch runs in these ways, each with torch.compile,
scaled_dot_product_attention held to one backend, and fused AdamW:

    autocast         f32 weights, products in bf16 by torch.autocast: what weft does (f32 masters); flash attention
    autocast-cudnn   the same with cuDNN's attention
    bf16             bf16 weights and moments, no masters: less memory, and rounds every update; flash attention

weft's ratio is given against each; the better of the first two computes what weft does. weft runs as it does by
itself, with the same bits each time, and as `any bits` with train.numerics = "nondeterministic": PyTorch's attention
backward does not repeat either. Where a micro-batch does not fit, PyTorch's is halved and gradients are accumulated.
weft runs before and after, and the better counts.
Flop/s of both are weft's count; MFU is against the rate of a large bf16 product in PyTorch.

To try the script without a GPU:  --device cpu --backend cpu --no-compile --batch 2 --seq 32 --layers 1 --width 64
"""
import argparse, gc, json, os, re, subprocess, sys, tempfile, time
try:
    import tomllib
except ImportError:  # before Python 3.11
    from pip._vendor import tomli as tomllib
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context

from pytorch_models import build_model

WAYS = ["autocast", "autocast-cudnn", "bf16"]
WEFTS = {"weft": [], "weft, any bits": ["train.numerics=nondeterministic"]}
RECIPES = ["bench/gpu-llama-1b.toml", "bench/gpu-llama-8b-blocks.toml", "bench/gpu-gpt2-124m.toml"]


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("recipes", nargs="*", default=RECIPES)
    p.add_argument("--weft", default="build/cuda/weft", help="the program; '' leaves it out")
    p.add_argument("--iters", type=int, default=10, help="steps; the best counts")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--backend", default="cuda", help="run.backend of weft")
    p.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    p.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    for what in ("batch", "seq", "layers", "width"):
        p.add_argument(f"--{what}", type=int, help="in place of the recipe's or its model's, for both")
    return p.parse_args()


class Case:
    """A recipe's shapes, made smaller where asked: the model's folder and weft's settings say the same."""

    def __init__(self, recipe, o, folder):
        with open(recipe, "rb") as f: r = tomllib.load(f)
        self.recipe, self.name = recipe, os.path.splitext(os.path.basename(recipe))[0]
        with open(os.path.join(r["model"]["path"], "config.json")) as f: self.config = json.load(f)
        self.seq, self.batch = o.seq or r["train"]["seq_length"], o.batch or r["train"]["global_batch_size"]
        self.micro = min(r["train"]["micro_batch_size"], self.batch)
        self.settings = [f"run.backend={o.backend}"]
        if o.seq or o.batch:
            self.settings += [f"train.seq_length={self.seq}", f"train.global_batch_size={self.batch}",
                              f"train.micro_batch_size={self.micro}"]
        if o.layers or o.width: self.shrink(o, folder)

    def shrink(self, o, folder):
        c, gpt2 = self.config, self.config["model_type"] == "gpt2"
        if o.layers: c["n_layer" if gpt2 else "num_hidden_layers"] = o.layers
        if o.width and gpt2: c.update(n_embd=o.width, n_head=4)
        if o.width and not gpt2:
            c.update(hidden_size=o.width, intermediate_size=3 * o.width, num_attention_heads=4, num_key_value_heads=2,
                     head_dim=o.width // 4)
        c["vocab_size"] = 1000
        path = os.path.join(folder, self.name)
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w") as f: json.dump(c, f)
        self.settings.append(f"model.path={path}")


def time_weft(case, o, more):
    """(tokens/s, flop/s, MiB planned, MFU or None), or None with a line that says why."""
    command = [o.weft, "bench", "step", case.recipe, f"--iters={o.iters}", *case.settings, *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{case.name}: weft did not run: {done.stderr.strip()}", flush=True)
        return None
    whole = re.search(r"whole step .* (\d+) tokens/s, ([\d.]+) GFLOP/s, (\d+) MiB", done.stdout)
    mfu = re.search(r"^MFU ([\d.]+)", done.stdout, re.M)
    return int(whole[1]), float(whole[2]) * 1e9, int(whole[3]), float(mfu[1]) if mfu else None


def attention_of(way, device):
    """Fails where that attention cannot run, in place of a slower way unseen."""
    if device != "cuda": return nullcontext()
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel(SDPBackend.CUDNN_ATTENTION if way.endswith("cudnn") else SDPBackend.FLASH_ATTENTION)
    except ImportError:
        import torch
        if way.endswith("cudnn"): raise
        return torch.backends.cuda.sdp_kernel(enable_flash=True, enable_math=False, enable_mem_efficient=False)


def wait(device):
    import torch
    if device == "cuda": torch.cuda.synchronize()


def alone(f, *args):
    """f(*args) in a process of its own, so that all its memory of the GPU is given back."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool: return pool.submit(f, *args).result()


def look_at_pytorch(o):
    """What it is in words, and its flop/s of a large bf16 product, the best of 10; or why there is none."""
    try:
        import torch
    except ImportError as e:
        return f"there is no PyTorch for {sys.executable} ({e})", 0
    if o.device == "cuda" and not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no GPU (torch.version.cuda is {torch.version.cuda})", 0
    n = 8192 if o.device == "cuda" else 512
    a, b = (torch.randn(n, n, device=o.device, dtype=torch.bfloat16) for _ in range(2))
    best = 1e30
    for i in range(12):
        wait(o.device)
        began = time.perf_counter()
        a @ b
        wait(o.device)
        if i > 1: best = min(best, time.perf_counter() - began)
    on = torch.cuda.get_device_name() if o.device == "cuda" else "cpu"
    return f"PyTorch {torch.__version__}, {on}", 2 * n**3 / best


def make_step(case, way, micro, o):
    """A function that trains one step of the whole batch in micro-batches."""
    import torch
    from torch.nn import functional as F
    torch.set_float32_matmul_precision("high")  # of what autocast leaves in f32
    c, device = case.config, o.device
    torch.manual_seed(1)
    model = build_model(c).to(device)
    if way == "bf16": model = model.to(torch.bfloat16)
    options = dict(lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    if device == "cuda": options["fused"] = True
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    ids, targets = (torch.randint(c["vocab_size"], (case.batch, case.seq), device=device) for _ in range(2))
    autocast = torch.autocast(device, dtype=torch.bfloat16) if way.startswith("autocast") else nullcontext()

    def loss_of(x, y):
        return F.cross_entropy(model(x).view(-1, c["vocab_size"]).float(), y.view(-1))

    run = loss_of if o.no_compile else torch.compile(loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        for at in range(0, case.batch, micro):
            with autocast, attention_of(way, device):
                loss = run(ids[at : at + micro], targets[at : at + micro])
            (loss * (micro / case.batch)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def time_pytorch(case, way, o):
    """(seconds of a step, MiB at most, micro-batch)."""
    import torch
    too_large = getattr(torch.cuda, "OutOfMemoryError", RuntimeError)
    micro = case.micro
    while True:
        gc.collect()
        if hasattr(torch, "compiler") and hasattr(torch.compiler, "reset"): torch.compiler.reset()
        if o.device == "cuda": torch.cuda.empty_cache(), torch.cuda.reset_peak_memory_stats()
        try:
            step = make_step(case, way, micro, o)
            for _ in range(3): step()  # compiles, and settles the allocator
            best = 1e30
            for _ in range(o.iters):
                wait(o.device)
                began = time.perf_counter()
                step()
                wait(o.device)
                best = min(best, time.perf_counter() - began)
            return best, torch.cuda.max_memory_allocated() / 2**20 if o.device == "cuda" else 0, micro
        except too_large:
            if o.device != "cuda" or micro == 1: raise
            step, micro = None, micro // 2


def time_wefts(case, o):
    ways = {name: more for name, more in WEFTS.items() if o.backend == "cuda" or not more} if o.weft else {}
    return {name: time_weft(case, o, more) for name, more in ways.items()}


def compare(case, o, rate):
    before = time_wefts(case, o)
    times = {}
    for way in o.ways:
        try:
            times[way] = alone(time_pytorch, case, way, o)
        except Exception as e:  # one way less, said so
            print(f"{case.name}: PyTorch did not run in the way `{way}`: {type(e).__name__}: {e}", flush=True)
    after = time_wefts(case, o)
    both = {name: max(filter(None, (one, after[name])), default=None) for name, one in before.items()}
    wefts = {name: best for name, best in both.items() if best}
    tokens = case.batch * case.seq
    for name, weft in wefts.items():
        print(f"{case.name:<22}{name:<16}{weft[0]:>12.0f}{weft[1] / rate:>8.3f}{weft[2]:>12}{case.micro:>8}"
              f"   {'' if weft[3] is None else f'{weft[3]:.3f} by its own rate'}", flush=True)
    for way, (seconds, mib, micro) in times.items():
        speed = tokens / seconds
        flops = next((weft[1] / weft[0] for weft in wefts.values()), None)  # of a token
        mfu = f"{flops * speed / rate:>8.3f}" if flops else f"{'-':>8}"
        ratios = "".join(f"   {name} / PyTorch {weft[0] / speed:.2f}" for name, weft in wefts.items())
        print(f"{case.name:<22}{way:<16}{speed:>12.0f}{mfu}{mib:>12.0f}{micro:>8}{ratios}", flush=True)
    return bool(times) and len(wefts) == len(before)


def main():
    o = parse_arguments()
    words, rate = alone(look_at_pytorch, o)
    if rate == 0: sys.exit(f"{words}; nothing was compared")
    print(f"{words}, {'without' if o.no_compile else 'with'} torch.compile; bf16 products {rate / 1e12:.2f} TFLOP/s")
    print(f"{'case':<22}{'way':<16}{'tokens/s':>12}{'MFU':>8}{'peak MiB':>12}{'micro':>8}")
    with tempfile.TemporaryDirectory() as folder:
        good = [compare(Case(recipe, o, folder), o, rate) for recipe in o.recipes]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
