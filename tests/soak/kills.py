#!/usr/bin/env python3
"""Kills runs at random moments, on ever other ranks and layouts, and holds what comes out to runs that nobody disturbed:
  tests/soak/kills.py --weft build/cpu/weft [--kills 1000] [--seed 1] [--folder DIR]
What is done to a run: its process is killed; its supervisor is killed; it is asked to stop by SIGTERM; a byte of its newest
checkpoint is flipped while nothing runs. Its ranks, layout and what may change of it are drawn anew each time. A run that has made its steps has to have
the weights, optimizer state, losses and gradient norms of the undisturbed one, to the bit, and each step once. Then the
next run begins, with another seed. Exit status 1 where a bit is lost, or a run does not come to its end.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS = 240
RECIPE = """
[model]
path = "{model}"
[data]
train = ["{model}/tokens.bin"]
[train]
seq_length = 8
global_batch_size = 8
micro_batch_size = 1
train_iters = {steps}
numerics = "invariant"
seed = {seed}
[optimizer]
lr = 1e-3
lr_warmup_iters = 0
[checkpoint]
save_interval = 2
async_save = {async_save}
[run]
threads = 1
dir = "{dir}"
[parallel]
{parallel}
[fleet]
min_ranks = 1
max_ranks = 8
available = "sh {available}"
poll_seconds = 3
may_change = {may_change}
"""
LAYOUTS = ["dp = 1", "dp = 2", "dp = 4", "dp = 8", "pp = 2", "dp = 2\npp = 2", "dp = 2\nzero_stage = 1", "dp = 4\nzero_stage = 3",
           "dp = 2\npp = 2\npipeline_schedule = \"zb_h1\"", "dp = 2\nrecompute = \"full\""]
MAY_CHANGE = [["dp"], ["dp", "pp"], ["dp", "zero_stage"], ["dp", "pp", "zero_stage", "recompute"]]
KINDS = ["run killed"] * 14 + ["supervisor killed"] * 4 + ["stopped"] * 2


def fail(text):
    print(f"\nkills.py: {text}", file=sys.stderr)
    sys.exit(1)


def children_of(pid):
    try:
        return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def runs_weft_train(pid):
    try:
        return b"train" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:3]
    except OSError:
        return False


class Soak:
    def __init__(self, weft, folder, seed):
        self.weft, self.folder, self.random = weft, folder, random.Random(seed)
        self.counts = {"run killed": 0, "supervisor killed": 0, "stopped": 0, "checkpoint damaged": 0}
        self.layouts, self.runs, self.steps_back = set(), 0, 0
        (folder / "n.sh").write_text("shuf -n 1 -e 1 2 3 4 5 6 8\n")

    def kills(self):
        return self.counts["run killed"] + self.counts["supervisor killed"]

    def recipe(self, name, seed, **changed):
        values = dict(model=ROOT / "tests/golden/llama-gqa", steps=STEPS, seed=seed, dir=self.folder / name, parallel="dp = 1",
                      available=self.folder / "n.sh", may_change='["dp"]', async_save="false") | changed
        file = self.folder / f"{name}.toml"
        file.write_text(RECIPE.format(**values))
        return file

    def undisturbed(self, seed):
        done = subprocess.run([self.weft, "train", self.recipe("whole", seed)], capture_output=True, text=True)
        if done.returncode:
            fail(f"the undisturbed run ended with status {done.returncode}:\n{done.stderr}")

    def disturbed_once(self, seed):
        """One supervisor, till it ends or is ended. True when the run has made its steps."""
        draw = self.random
        recipe = self.recipe("run", seed, parallel=draw.choice(LAYOUTS), may_change=json.dumps(draw.choice(MAY_CHANGE)),
                             async_save=draw.choice(["true", "false"]))
        log = open(self.folder / "supervisor.log", "a+")
        # Attempts come to nothing here more often than anywhere: the supervisor must not give up.
        supervisor = subprocess.Popen([self.weft, "supervise", recipe, "--attempts", "1000", "--force"], stderr=log, stdout=log)
        while supervisor.poll() is None:
            kind = draw.choice(KINDS)
            time.sleep(0.1 + draw.expovariate(1 / 0.8))
            if kind == "run killed":
                for child in children_of(supervisor.pid):
                    if runs_weft_train(child):
                        try:
                            os.kill(child, signal.SIGKILL)
                            self.counts[kind] += 1
                        except ProcessLookupError:
                            pass
                continue
            supervisor.send_signal(signal.SIGKILL if kind == "supervisor killed" else signal.SIGTERM)
            self.counts[kind] += 1
            try:
                supervisor.wait(120)
            except subprocess.TimeoutExpired:
                fail(f"a supervisor that was {kind} has not ended after two minutes")
        # 137: the run was killed just before its supervisor was asked to stop; -SIGTERM: it had not begun to listen.
        if supervisor.returncode not in (0, 75, 137, -signal.SIGKILL, -signal.SIGTERM):
            log.seek(0)
            fail(f"the supervisor ended with status {supervisor.returncode}:\n{log.read()[-4000:]}")
        return supervisor.returncode == 0

    def damage(self):
        """Flips a byte of the newest checkpoint, where an older one is there and the last damage is behind."""
        steps = sorted((self.folder / "run/checkpoints").glob("step-*[0-9]"), key=lambda s: int(s.name[5:]))
        if len(steps) < 2:
            return
        files = [f for f in steps[-1].iterdir() if f.is_file() and f.stat().st_size]
        file = self.random.choice(files)
        data = bytearray(file.read_bytes())
        data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        file.write_bytes(data)
        self.counts["checkpoint damaged"] += 1

    def compare(self):
        whole, run = self.folder / "whole", self.folder / "run"
        for file in sorted((whole / f"checkpoints/step-{STEPS}").glob("*.safetensors")):
            other = run / f"checkpoints/step-{STEPS}" / file.name
            if not other.exists() or other.read_bytes() != file.read_bytes():
                fail(f"{other} has not the bytes of {file}: kept in {self.folder}")
        rows = [[(r["step"], r["loss"], r["grad_norm"]) for r in map(json.loads, open(d / "metrics.jsonl")) if "grad_norm" in r]
                for d in (whole, run)]
        if rows[0] != rows[1]:
            differs = [pair for pair in zip(*rows) if pair[0] != pair[1]][:1]
            fail(f"metrics.jsonl differs ({len(rows[0])} and {len(rows[1])} steps, first at {differs}): kept in {self.folder}")
        for line in open(run / "events.jsonl"):
            event = json.loads(line)
            if event["event"] == "layout":
                self.layouts.add(re.sub(r", micro-batch.*", "", event["layout"]))

    def one_run(self, kills):
        seed = self.random.randrange(1 << 30)
        for name in ("whole", "run"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self.undisturbed(seed)
        while not self.disturbed_once(seed):
            if self.random.random() < 0.3:
                self.damage()
            self.say(kills)
        self.compare()
        self.runs += 1
        self.say(kills)

    def say(self, kills):
        what = ", ".join(f"{n} {k}" for k, n in self.counts.items())
        print(f"\r{self.kills()} of {kills} kills; {self.runs} runs to their ends; {what}; {len(self.layouts)} layouts beside the recipes'",
              end="" if sys.stdout.isatty() else "\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path, help="empty; kept")
    options = parser.parse_args()
    folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="weft-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    soak = Soak(options.weft, folder.resolve(), options.seed)
    began = time.time()
    while soak.kills() < options.kills:
        soak.one_run(options.kills)
    print(f"\nno bit lost in {soak.kills()} kills of {soak.runs} runs, {time.time() - began:.0f} s; layouts: {'; '.join(sorted(soak.layouts))}")
    if not options.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
