#!/usr/bin/env bash
# What local copies cost (docs/operations.md, "Copies on the hosts themselves"): the time that a step waits for one, beside
# the same run's steps and a plain copy of as many bytes in memory.
#   bench/local_copies.sh [FOLDER [RECIPE [SETTINGS ...]]]
# FOLDER: where the copies go, /dev/shm/weft-bench by default; it is removed. RECIPE: bench/llama-8x512.toml by default. Two
# to five minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
copies=${1:-/dev/shm/weft-bench}
recipe=${2:-bench/llama-8x512.toml}
shift $(($# < 2 ? $# : 2))
weft=${WEFT:-build/cpu/weft}
work=$(mktemp -d)
trap 'rm -rf "$work" "$copies"' EXIT
python3 - "$work/ids.bin" <<'PY'
import array, random, sys
random.seed(1)
array.array("H", (random.randrange(1000) for _ in range(2_000_000))).tofile(open(sys.argv[1], "wb"))
PY
settings=("data.train=[\"$work/ids.bin\"]" data.dtype=uint16 train.train_iters=13 optimizer.lr_warmup_iters=0
  checkpoint.save_interval=0 "checkpoint.local_dir=$copies" checkpoint.local_interval=4 "run.dir=$work/run" "$@")
"$weft" train "$recipe" "${settings[@]}" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
"$weft" plan "$recipe" "${settings[@]}" --json >"$work/plan.json"
python3 - "$work" <<'PY'
import json, statistics, sys, time
work = sys.argv[1]
steps = [json.loads(line) for line in open(work + "/run/metrics.jsonl")]
steps = [s for s in steps if "step_time_s" in s]
step_s = statistics.median(s["step_time_s"] for s in steps[1:])
# What a step waits for the copy of the one before stands in its own record.
waits = {s["step"] - 1: s.get("save_s", 0) for s in steps if (s["step"] - 1) % 4 == 0 and s["step"] > 1}
snapshot = json.load(open(work + "/plan.json"))["memory"]["snapshot"]["bytes"]
from_, to = bytearray(snapshot), bytearray(snapshot)
times = []
for _ in range(3):
    began = time.perf_counter()
    to[:] = from_
    times.append(time.perf_counter() - began)
copy_s = min(times)
print(f"a step {step_s:.3f} s (median of {len(steps) - 1}); {snapshot / 2**20:.0f} MiB a rank, copied plainly in {copy_s:.3f} s")
for step, wait_s in waits.items():
    print(f"copy of step {step}: {wait_s:.3f} s, {100 * (wait_s - copy_s) / step_s:.1f} % of a step beyond a plain copy")
for line in open(work + "/run/events.jsonl"):
    event = json.loads(line)
    if event["event"] == "local_saved":
        print(f"  step {event['step']}: {event['bytes'] / 2**20:.0f} MiB of all ranks on the disk after {event['seconds']:.2f} s")
PY
