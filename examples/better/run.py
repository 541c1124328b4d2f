#!/usr/bin/env python3
"""Fine-tuning that makes a model better, measured: docs/tune/better.md.

  python3 examples/better/run.py [--weft PROGRAM] [--short] sft | dpo | distill | export | all

Each chapter runs the commands that it prints, writes runs/better/CHAPTER.json and .svg, and needs at most three minutes
on two cores. The first one trains the base, which all share (`base` does only that). What was trained is not trained
again: remove runs/better to begin anew. --short takes less of everything, for a test of these recipes."""
import argparse
import json
import math
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True  # no folder of Python beside the recipes
import picture

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = pathlib.Path("runs/better")
TEXTS = RUNS / "texts"
RECIPES = pathlib.Path("examples/better")
STEPS = {"base": 1200, "sft": 100, "reward": 80, "dpo": 50, "student": 150}  # as the recipes say
SHORT = {"base": 1200, "sft": 100, "reward": 40, "dpo": 30, "student": 80}
MOST_LOSS = {"GPTQ, 8 bits": 0.0005, "GPTQ, 4 bits": 0.002, "GGUF, Q8_0": 0.0005, "GGUF, Q4_0": 0.003}  # nats a token


class Runner:
    def __init__(self, program, short):
        self.program, self.short = program, short
        self.steps = SHORT if short else STEPS
        self.limit = ["--limit", "100"] if short else []

    def weft(self, *args):
        """Runs a command and returns what it printed; what it says beside that goes to the terminal."""
        args = [str(a) for a in args]
        print("$ weft " + shlex.join(args), flush=True)
        done = subprocess.run([self.program, *args], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"run.py: weft {args[0]} ended with exit status {done.returncode}")
        return done.stdout

    def checkpoint(self, run):
        return RUNS / run / "checkpoints" / f"step-{self.steps[run]}"

    def train(self, recipe, *overrides, run=None, begin=None):
        """Trains examples/better/RECIPE.toml; `begin` is the run whose last checkpoint it begins with."""
        folder = RUNS / (run or recipe)
        if (folder / "done").exists():
            return
        words = list(overrides)
        if run:
            words.append(f"run.dir={folder}")
        if self.short:  # the recipes name the whole runs' checkpoints
            words.append(f"train.train_iters={self.steps[recipe]}")
            words += [f"model.path={self.checkpoint(begin)}"] if begin else []
        self.weft("train", RECIPES / f"{recipe}.toml", *words)
        (folder / "done").write_text("")

    def texts(self):
        if not (TEXTS / "valid-pairs.jsonl").exists():  # the last one that is written
            print(f"$ python3 {RECIPES}/texts.py {TEXTS}", flush=True)
            subprocess.run([sys.executable, str(RECIPES / "texts.py"), str(TEXTS)], check=True)
        if not (RUNS / "tokenizer").exists():
            self.weft("data", "train-tokenizer", TEXTS / "base.txt", "--vocab-size", 512, "--special", "<|endoftext|>",
                      "--out", RUNS / "tokenizer")

    def base(self):
        self.texts()
        self.train("base")

    def sft(self):
        self.base()
        if not (RUNS / "questions" / "manifest.json").exists():
            self.weft("data", "run", RECIPES / "questions.toml")
        self.train("sft", begin="base")

    def eval_tasks(self, model, output, *options):
        """The results of one task file: metrics and samples."""
        self.weft("eval", model, "--output", output, *options, *self.limit)
        return json.loads(pathlib.Path(output).read_text())["results"][0]

    def accuracy(self, model, name, *options):
        results = self.eval_tasks(model, RUNS / f"eval-{name}.json", "--tasks", f"lambada={TEXTS}/test.jsonl",
                                  "--seq-length", 256, *options)
        metric = results["metrics"]["acc"]
        return metric["value"], metric["stderr"]


def evaluations(run):
    """What a run measured on held-out data: a list of (step, values)."""
    lines = map(json.loads, (RUNS / run / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["eval"]) for line in lines if "eval" in line]


def mean_error(values):
    mean = sum(values) / len(values)
    spread = sum((v - mean) ** 2 for v in values) / max(len(values) - 1, 1)
    return mean, math.sqrt(spread / len(values))


def sft(r):
    """Accuracy on questions about animals that no question in training was about."""
    r.sft()
    shots = ["--num-fewshot", 4, "--fewshot-from", f"lambada={TEXTS}/examples.jsonl"]
    rows = {"base": r.accuracy(RUNS / "base", "base"), "base, 4 examples before the question":
            r.accuracy(RUNS / "base", "base-4", *shots), "after SFT": r.accuracy(RUNS / "sft", "sft")}
    alone = {"sft-alone": ("the same SFT without the base", []),
             "sft-alone-longer": ("that in 300 steps at lr 1e-3", ["train.train_iters=300", "optimizer.lr=1e-3"])}
    for run, (name, longer) in alone.items():
        if longer and r.short:
            continue
        r.train("sft", "model.path=examples/better/model", "model.init=random", "data.tokenizer=runs/better/tokenizer",
                *longer, run=run)
        rows[name] = r.accuracy(RUNS / run, run)
    picture.bars(RUNS / "sft.svg", "Held-out questions answered right", rows)
    return {"accuracy": rows}


def judged(r, run):
    """What a model writes to the held-out prompts, with the reward model's scores; and which are right and short."""
    judge = ["--judge", RUNS / "reward", "--toxic-below", 0, "--max-tokens", 40, "--micro-batch-size", 32]
    samples = r.eval_tasks(RUNS / run, RUNS / f"judged-{run}.json", "--tasks", f"toxicity={TEXTS}/prompts.jsonl",
                           *judge)["samples"]
    right = [json.loads(line)["right"] for line in (TEXTS / "prompts.jsonl").read_text().splitlines()]
    return {"scores": [s["score"] for s in samples],
            "right": mean_error([s["written"].startswith(right[s["row"] - 1]) for s in samples]),
            "as preferred": mean_error([s["written"] == right[s["row"] - 1] for s in samples])}


def dpo(r):
    """Margins on held-out pairs, and wins over the SFT model by a reward model that was trained on other pairs."""
    r.sft()
    r.train("reward", begin="sft")
    r.train("dpo", begin="sft")
    before, after = judged(r, "sft"), judged(r, "dpo")
    wins = [(a > b) + (a == b) / 2 for b, a in zip(before["scores"], after["scores"])]
    rows = {"right and without a tail: SFT": before["as preferred"],
            "right and without a tail: DPO": after["as preferred"], "right: SFT": before["right"],
            "right: DPO": after["right"], "DPO wins, by the reward model": mean_error(wins)}
    picture.bars(RUNS / "dpo.svg", "Answers to held-out questions", rows)
    steps = map(json.loads, (RUNS / "dpo" / "metrics.jsonl").read_text().splitlines())
    margins = [step["margin"] for step in steps if "margin" in step]
    held_out = evaluations("dpo")[-1][1]
    return {"answers": rows, "wins": sum(w == 1 for w in wins), "losses": sum(w == 0 for w in wins), "of": len(wins),
            "score": {"SFT": mean_error(before["scores"]), "DPO": mean_error(after["scores"])},
            "held-out pairs": {"margin": held_out["margin"], "accuracy": held_out["accuracy"],
                               "reward model's accuracy": evaluations("reward")[-1][1]["accuracy"]},
            "margin of the first and last step": [margins[0], margins[-1]]}


def distill(r):
    """Held-out loss of a small model after equal steps, beside a teacher and alone, of several seeds."""
    r.base()
    curves = {"alone": [], "with a teacher": []}
    for seed in [1] if r.short else [1, 2, 3]:
        teacher = [f"objective.teacher={r.checkpoint('base')}"] if r.short else []
        ways = {"with a teacher": teacher, "alone": [*teacher, "objective.alpha=0", "objective.temperature=2"]}
        for way, overrides in ways.items():
            run = f"student-{way.split()[-1]}-{seed}"
            r.train("student", f"train.seed={seed}", *overrides, run=run)
            curves[way].append([(step, e["loss"]) for step, e in evaluations(run)])
    means = {way: [(of_seeds[0][0], sum(loss for _, loss in of_seeds) / len(of_seeds)) for of_seeds in zip(*runs)]
             for way, runs in curves.items()}
    picture.lines(RUNS / "distill.svg", "Held-out loss of a small model, nats a token", means)
    last = {way: [run[-1][1] for run in runs] for way, runs in curves.items()}
    least = {way: [min(loss for _, loss in run) for run in runs] for way, runs in curves.items()}
    gains = [a - b for a, b in zip(last["alone"], last["with a teacher"])]
    return {"loss": last, "least loss": least, "gain": mean_error(gains), "teacher": evaluations("base")[-1][1]["loss"]}


def export(r):
    """Loss of the base in few bits, and accuracy of the SFT model. What loses more than --max-loss is refused."""
    r.sft()
    accuracy, losses = {"f32": r.accuracy(RUNS / "sft", "sft")}, {}
    ways = {"GPTQ, 8 bits": ("gptq", "int8", ["--bits", 8]), "GPTQ, 4 bits": ("gptq", "int4", ["--group-size", 32]),
            "GGUF, Q8_0": ("gguf", "q8.gguf", ["--type", "Q8_0"]), "GGUF, Q4_0": ("gguf", "q4.gguf", ["--type", "Q4_0"])}
    for way, (option, name, words) in ways.items():

        def write(model, text, *more):
            out = RUNS / f"{model}-{name}"
            said = RUNS / f"{model}-{name}.txt"
            if not said.exists():
                calibrate = ["--calibrate", TEXTS / text] if option == "gptq" else []
                said.write_text(r.weft("export", RUNS / model, f"--{option}", out, *words, *calibrate, *more))
            return out, said.read_text()

        said = write("base", "student.txt", "--data", TEXTS / "base-valid.txt", "--max-loss", MOST_LOSS[way])[1]
        before, after = map(float, re.search(r"loss ([\d.]+) before, ([\d.]+) after", said).groups())
        losses[way] = {"before": before, "after": after, "rise": after - before, "at most": MOST_LOSS[way]}
        tuned = write("sft", "questions.txt", "--data", TEXTS / "test.txt")[0]
        accuracy[way] = r.accuracy(tuned, tuned.name)
    picture.bars(RUNS / "export.svg", "Held-out questions answered right, by the SFT model", accuracy)
    return {"loss": losses, "accuracy": accuracy}


CHAPTERS = {"base": Runner.base, "sft": sft, "dpo": dpo, "distill": distill, "export": export}


def show(result, depth=0):
    for name, value in result.items():
        pad = "  " * depth
        if isinstance(value, dict):
            print(f"{pad}{name}:")
            show(value, depth + 1)
        elif isinstance(value, tuple):
            print(f"{pad}{name:40} {value[0]:.4f}  (standard error {value[1]:.4f})")
        else:
            numbers = value if isinstance(value, list) else [value]
            print(f"{pad}{name:40} {'  '.join(f'{v:.4f}' if isinstance(v, float) else str(v) for v in numbers)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapter", choices=[*CHAPTERS, "all"])
    parser.add_argument("--weft", default="build/cpu/weft", help="the program, as seen from the repository's root")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    os.chdir(ROOT)
    runner = Runner(options.weft, options.short)
    for chapter in ["sft", "dpo", "distill", "export"] if options.chapter == "all" else [options.chapter]:
        result = CHAPTERS[chapter](runner)
        if result:
            (RUNS / f"{chapter}.json").write_text(json.dumps(result, indent=1) + "\n")
            print(f"\n{chapter}: {CHAPTERS[chapter].__doc__}")
            show(result)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{used.ru_utime + used.ru_stime:.0f} s of processor time")


if __name__ == "__main__":
    main()
