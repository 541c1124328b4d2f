#!/usr/bin/env python3
"""Forecasts of 40 recipes beside steps that are run on this machine, which must have nothing else to do:
  bench/forecast_against_run.py [--weft build/cpu/weft] [--machine machine.toml] [--hosts hosts.toml] [--rounds N] [--parts] [--only TEXT]
Measures the machine first (weft bench machine) where no file is given. As root also between two hosts, which are network
namespaces with 1 Gbit/s between them (bench/two_hosts.sh). Prints what each recipe takes, then a line for each, and at the end the errors, and
how many pairs of recipes whose steps differ by more than 5 % are in the right order. --parts: also where each recipe's
step was forecast otherwise than it ran; the sums of that by op stand at the end in any case. --json FILE: all of it.
--rounds N: all recipes in turn, N times, and of each the round in the middle, as a shared machine's speed moves within minutes.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MBIT = "1000"  # between the two hosts
DIFFERS = 1.05

# What is trained: recipe, tokens of a sequence, sequences of a step, precision.
WORK = {
    "A": ("llama-2x256", 512, 8, "f32"),
    "B": ("llama-8x512", 256, 2, "f32"),
    "C": ("gpt2-30m", 256, 4, "f32"),
    "D": ("experts-8x512", 256, 2, "f32"),
    "E": ("llama-2x256", 4096, 2, "f32"),
    "F": ("llama-8x512", 256, 2, "bf16"),
    "G": ("gpt2-30m", 256, 4, "bf16"),
    "H": ("llama-2x256", 64, 8, "f32"),
    "I": ("llama-2x256", 512, 8, "fp16"),
    "J": ("experts-8x512", 256, 2, "bf16"),
}
# Layouts: sequences of a micro-batch, and settings of [parallel].
CASES = [
    ("A", 8, ""), ("A", 2, ""), ("A", 8, "recompute=full"), ("A", 4, "dp=2"), ("A", 4, "dp=2 zero_stage=1"),
    ("A", 4, "dp=2 zero_stage=3"), ("A", 1, "dp=2"), ("A", 8, "tp=2"), ("A", 2, "tp=2"), ("A", 1, "pp=2"),
    ("A", 1, "pp=2 pipeline_schedule=zb_h1"), ("A", 2, "tp=2 recompute=full"),
    ("B", 2, ""), ("B", 1, ""), ("B", 2, "recompute=full"), ("B", 2, "recompute=selective"), ("B", 1, "dp=2"),
    ("B", 1, "dp=2 zero_stage=1"), ("B", 1, "dp=2 zero_stage=3"), ("B", 2, "tp=2"), ("B", 1, "pp=2"),
    ("C", 4, ""), ("C", 2, "dp=2"), ("C", 4, "tp=2"), ("C", 1, "pp=2"),
    ("D", 2, ""), ("D", 1, "dp=2"), ("D", 1, "dp=2 ep=2"),
    ("E", 1, ""), ("E", 1, "cp=2"), ("E", 1, "dp=2"),
    ("F", 2, ""), ("F", 1, "dp=2"), ("F", 2, "tp=2"),
    ("G", 4, ""), ("H", 8, ""), ("I", 4, ""), ("J", 2, ""),
]
HOST_CASES = [("A", 4, "dp=2"), ("A", 4, "dp=2 zero_stage=1")]


def settings_of(work, micro_batch, layout):
    _, length, sequences, precision = WORK[work]
    return [f"train.seq_length={length}", f"train.global_batch_size={sequences}",
            f"train.micro_batch_size={micro_batch}", f"train.precision={precision}",
            *(f"parallel.{one}" for one in layout.split())]


def run(command, **more):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}")
    return done.stdout


def measure(args, work, micro_batch, layout, hosts):
    recipe = f"bench/{WORK[work][0]}.toml"
    more = [*settings_of(work, micro_batch, layout), "--json", f"--iters={args.iters}"]
    if hosts:
        text = run(["bench/two_hosts.sh", MBIT, "forecast", recipe, *more, "--cluster", args.hosts],
                   env={**os.environ, "WEFT": args.weft})
    else:
        text = run([args.weft, "bench", "forecast", recipe, "run.threads=0", *more, "--cluster", args.machine])
    found = json.loads(text[text.index("{"):])
    found.update(work=work, name=" ".join([*WORK[work][:1], *map(str, WORK[work][1:]), f"by {micro_batch}", layout,
                                           "on two hosts" if hosts else ""]).strip())
    found["error"] = found["forecast_s"] / found["measured_s"] - 1
    return found


def print_parts(found):
    for name, p in sorted(found["parts"].items(), key=lambda kv: -abs(kv[1]["forecast_s"] - kv[1]["measured_s"]))[:8]:
        more = (p["forecast_s"] - p["measured_s"]) / found["measured_s"] * 100
        print(f"      {name:24} {p['forecast_s'] * 1e3:9.2f} {p['measured_s'] * 1e3:9.2f}  {more:+6.1f} % of the step")


def pairs_of(rows):
    """Pairs that differ, and how many of them are in the right order."""
    differ = right = 0
    for i, a in enumerate(rows):
        for b in rows[:i]:
            ratio = a["measured_s"] / b["measured_s"]
            if max(ratio, 1 / ratio) > DIFFERS:
                differ += 1
                right += (a["forecast_s"] > b["forecast_s"]) == (ratio > 1)
    return differ, right


def print_sums(rows):
    sums = collections.defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in rows:
        for name, p in row["parts"].items():
            s = sums[name]
            s[0] += p["forecast_s"]
            s[1] += p["measured_s"]
            s[2] += abs(p["forecast_s"] - p["measured_s"]) / row["measured_s"] / len(rows)
    print("\nall recipes together, on their first ranks: by how much each part is off, the worst first")
    print(f"{'part':26} {'forecast s':>11} {'measured s':>11} {'ratio':>7} {'off, mean of the steps':>23}")
    for name, (f, m, off) in sorted(sums.items(), key=lambda kv: -kv[1][2]):
        print(f"{name:26} {f:11.4f} {m:11.4f} {f / m if m > 0 else 0:7.2f} {off * 100:21.2f} %")


def middle(rounds):
    return sorted(rounds, key=lambda row: row["measured_s"])[(len(rounds) - 1) // 2]


def print_summary(rows):
    errors = sorted(abs(r["error"]) for r in rows)
    worst = max(rows, key=lambda r: abs(r["error"]))
    middle = len(errors) // 2
    median = errors[middle] if len(errors) % 2 else (errors[middle - 1] + errors[middle]) / 2
    print(f"\n{len(rows)} recipes: median error {median * 100:.1f} %, worst {worst['error'] * 100:+.1f} % ({worst['name']})")
    groups = [pairs_of([r for r in rows if r["work"] == work]) for work in WORK]
    for what, (differ, right) in (("layouts of the same work", tuple(map(sum, zip(*groups)))),
                                  ("any two recipes", pairs_of(rows))):
        if differ:
            print(f"{what}: {right} of {differ} pairs that differ by more than 5 % in the right order, "
                  f"{right / differ * 100:.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/cpu/weft")
    parser.add_argument("--machine")
    parser.add_argument("--hosts")
    parser.add_argument("--iters", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    args = parser.parse_args()
    args.weft = os.path.abspath(args.weft)
    folder = tempfile.TemporaryDirectory()
    can_have_hosts = os.geteuid() == 0
    if not args.machine:
        args.machine = f"{folder.name}/machine.toml"
        run([args.weft, "bench", "machine", "--ranks", "1,2", "--out", args.machine])
    if not args.hosts and can_have_hosts:
        args.hosts = f"{folder.name}/hosts.toml"
        run(["bench/two_hosts.sh", MBIT, "machine", "--precision", "f32", "--out", args.hosts], env={**os.environ, "WEFT": args.weft})
    if not can_have_hosts:
        print("not root: two hosts are left out")
    all_cases = [(False, c) for c in CASES] + [(True, c) for c in HOST_CASES if can_have_hosts]
    chosen = [(hosts, c) for hosts, c in all_cases if args.only in " ".join([*map(str, WORK[c[0]]), c[2]])]
    rounds = [[] for _ in chosen]
    for i in range(args.rounds):
        print(f"round {i + 1} of {args.rounds}", flush=True)
        for (hosts, case), of_case in zip(chosen, rounds):
            of_case.append(measure(args, *case, hosts))
            print(f"  {of_case[-1]['name']}: {of_case[-1]['measured_s'] * 1e3:.1f} ms", flush=True)
    rows = [middle(of_case) for of_case in rounds]
    print(f"{'model, tokens, sequences, precision, micro-batch, layout':64} {'forecast':>10} {'measured':>10} {'error':>8}")
    for row in rows:
        print(f"{row['name']:64} {row['forecast_s'] * 1e3:7.1f} ms {row['measured_s'] * 1e3:7.1f} ms "
              f"{row['error'] * 100:+6.1f} %")
        if args.parts:
            print_parts(row)
    print_sums(rows)
    print_summary(rows)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
