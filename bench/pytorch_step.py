#!/usr/bin/env python3
"""Times one training step in PyTorch on CPU and prints a line of JSON: for compare_pytorch.py, under any PyTorch.

    pytorch_step.py CONFIG_JSON BATCH SEQ THREADS ITERS WAY [LORA_RANK]

One step: forward, cross-entropy, backward, global-norm clipping, AdamW; scaled_dot_product_attention and fused AdamW where
they exist, gradients set to None. WAY is f32, autocast (bf16 products over f32 weights) or bf16 (bf16 weights; with LoRA
the narrow matrices are f32), with "+compile" behind it through torch.compile. LORA_RANK puts an adapter beside every
Linear of the blocks and freezes all else, as PEFT does; q, k and v, one Linear here, share one: less work than PEFT's three.
"""
import json, os, resource, sys, time

CONFIG, BATCH, SEQ, THREADS, ITERS = json.loads(sys.argv[1]), *map(int, sys.argv[2:6])
WAY, COMPILED = sys.argv[6].split("+")[0], sys.argv[6].endswith("+compile")
RANK = int(sys.argv[7]) if len(sys.argv) > 7 else 0
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"): os.environ[name] = str(THREADS)

import torch
from torch.nn import functional as F
from pytorch_models import add_lora, build_model


def main():
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = build_model(CONFIG)
    if WAY == "bf16": model = model.bfloat16()
    if RANK: add_lora(model, RANK)
    learns = [p for p in model.parameters() if p.requires_grad]
    options = dict(lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    try:
        optimizer = torch.optim.AdamW(learns, fused=True, **options)
    except (TypeError, RuntimeError, ValueError):  # before 2.4 not on CPUs
        optimizer = torch.optim.AdamW(learns, foreach=True, **options)
    vocabulary = CONFIG["vocab_size"]
    ids, targets = (torch.randint(vocabulary, (BATCH, SEQ)) for _ in range(2))
    run = torch.compile(model) if COMPILED else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=WAY != "f32"):
            logits = run(ids)
        F.cross_entropy(logits.float().view(-1, vocabulary), targets.view(-1)).backward()
        torch.nn.utils.clip_grad_norm_(learns, 1.0)
        optimizer.step()

    step()
    times = []
    for _ in range(ITERS):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"version": torch.__version__, "best_s": min(times), "mib": (peak - before) / 1024,
                      "parameters": sum(p.numel() for p in model.parameters()), "learn": sum(p.numel() for p in learns)}))


main()
