#!/usr/bin/env python3
"""Times training steps of the shapes in bench/*.toml in PyTorch, beside `weft bench step` in the same run.

    python3 bench/compare_pytorch.py [WEFT_PROGRAM] [THREADS] [ITERS]

One step: forward, cross-entropy, backward, global-norm clipping, AdamW, in f32. PyTorch runs in the best configuration
that its version has: scaled_dot_product_attention and fused AdamW where they exist (else a causal softmax on whole
matrices, and AdamW over lists), gradients set to None. Prints the best of ITERS steps, flop/s by the same count as
weft's, peak resident memory, and the ratio. Needs PyTorch (Debian: python3-torch with libopenblas0).
"""
import json, re, resource, subprocess, sys, time
from multiprocessing import Process, Queue
from pytorch_models import build_model

WEFT = sys.argv[1] if len(sys.argv) > 1 else "build/cpu/weft"
THREADS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
ITERS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
CASES = ["gpt2-124m", "gpt2-30m", "llama-8x512"]


def read_case(name):
    text = open(f"bench/{name}.toml").read()
    number = lambda key: int(re.search(rf"^{key} = (\d+)", text, re.M).group(1))
    return json.load(open(f"bench/models/{name}/config.json")), number("global_batch_size"), number("seq_length")


def time_pytorch(name, out):
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    c, batch, seq = read_case(name)
    model = build_model(c)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    options = dict(lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    try:
        optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)
        optimizer.state  # some versions only complain at the first step
    except (TypeError, RuntimeError, ValueError):
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True, **options)
    ids, targets = torch.randint(c["vocab_size"], (batch, seq)), torch.randint(c["vocab_size"], (batch, seq))

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(ids).view(-1, c["vocab_size"]), targets.view(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step()
    best = 1e30
    for _ in range(ITERS):
        began = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - began)
    parameters = sum(p.numel() for p in model.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out.put((torch.__version__, best, (peak - before) * 1024 + parameters * 4, parameters))


def time_weft(name):
    text = subprocess.run([WEFT, "bench", "step", f"bench/{name}.toml", f"run.threads={THREADS}", f"--iters={ITERS}"], capture_output=True, text=True, check=True).stdout
    whole = re.search(r"whole step\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+) tokens/s, ([\d.]+) GFLOP/s, (\d+) MiB", text)
    return float(whole.group(2)) / 1e3, float(whole.group(5)) * 1e9, float(whole.group(3)), int(whole.group(6)), text


def main():
    print(f"{'case':<14}{'weft ms':>10}{'GFLOP/s':>10}{'/ floor':>9}{'MiB':>8}{'beyond':>8}   {'torch ms':>10}{'GFLOP/s':>10}{'MiB':>8}{'beyond':>8}   {'ratio':>7}")
    for name in CASES:
        weft_s, flops_per_s, to_floor, weft_mib, _ = time_weft(name)
        queue = Queue()
        process = Process(target=time_pytorch, args=(name, queue))
        process.start()
        while queue.empty():
            process.join(0.1)
            if process.exitcode: sys.exit("PyTorch did not run, see above")
        version, torch_s, torch_bytes, parameters = queue.get()
        process.join()
        again_s, again_flops, again_floor, _, _ = time_weft(name)  # both sides of the other
        if again_s < weft_s: weft_s, flops_per_s, to_floor = again_s, again_flops, again_floor
        state = parameters * 16 / 2**20  # weights, gradients, two moments
        torch_mib = torch_bytes / 2**20
        print(f"{name:<14}{weft_s * 1e3:>10.1f}{flops_per_s / 1e9:>10.1f}{to_floor:>9.3f}{weft_mib:>8}{weft_mib - state:>8.0f}   "
              f"{torch_s * 1e3:>10.1f}{flops_per_s * weft_s / torch_s / 1e9:>10.1f}{torch_mib:>8.0f}{torch_mib - state:>8.0f}   {torch_s / weft_s:>7.2f}")
    print(f"PyTorch {version}, {THREADS} threads; 'beyond': memory beyond weights, gradients and moments; ratio: weft's tokens/s over PyTorch's")


if __name__ == "__main__":
    main()
