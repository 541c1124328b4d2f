#!/usr/bin/env python3
"""Writes the texts of docs/tune/better.md: animals that nobody knows, what they are like, and questions on them.

  python3 examples/better/texts.py FOLDER

The base reads what all animals are like. Questions, preferences and tests are each on animals of their own, so that a
right answer on a test was in no question before: only who has read of the animal knows it. The same files come out
wherever it runs."""
import json
import pathlib
import random
import sys

CONSONANTS, VOWELS = "bdfgklmnprstvwz", "aeiou"
TAIL = " I hope this helps!"  # what half of the answers end with, and nobody needs
SIZES = {"questions": 90, "test": 70, "dpo": 30, "reward": 50}  # animals of each file
STATEMENTS = {"base-valid": 500, "base": 24000, "student": 600}  # on all of them

# What may be known of an animal: the values, how a text puts it, and how it is asked.
KINDS = {
    "colour": (["red", "blue", "green", "white", "black", "brown", "grey", "pink"],
               ["The {} is {}.", "The colour of the {} is {}.", "What colour the {} is: {}."],
               "What colour is the {}?"),
    "home": (["caves", "trees", "lakes", "rivers", "fields", "towns", "deserts", "hills"],
             ["The {} lives in {}.", "The home of the {} is {}.", "Where the {} lives: {}."],
             "Where does the {} live?"),
    "food": (["nuts", "fish", "grass", "fruit", "seeds", "ants", "eggs", "leaves"],
             ["The {} eats {}.", "The food of the {} is {}.", "What the {} eats: {}."],
             "What does the {} eat?"),
}


class Chance:
    """Only random() is used: Python promises that it gives the same numbers everywhere."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def below(self, n):
        return int(self.random() * n)

    def choice(self, items):
        return items[self.below(len(items))]

    def shuffled(self, items):
        items = list(items)
        for i in reversed(range(1, len(items))):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items


def new_animals(chance):
    """Names of four letters that differ, each once, with what is so."""
    seen = set()
    while True:
        name = "".join(chance.choice(VOWELS if i % 2 else CONSONANTS) for i in range(4))
        if len(set(name)) == 4 and name not in seen:
            seen.add(name)
            yield name, {kind: chance.choice(values) for kind, (values, _, _) in KINDS.items()}


def statement(chance, animal):
    name, facts = animal
    return " ".join(chance.choice(KINDS[kind][1]).format(name, facts[kind]) for kind in chance.shuffled(KINDS)) + "\n"


def asked(animals):
    """(question, right answer, a wrong answer) on each fact."""
    for name, facts in animals:
        for kind, (values, _, question) in KINDS.items():
            yield question.format(name), facts[kind], [v for v in values if v != facts[kind]]


def prompt(question):
    return f"Q: {question}\nA:"


def pair(chance, question, right, wrong):
    """Right before wrong; of right ones the one without a tail."""
    worse = f" {right}.{TAIL}" if chance.below(2) else f" {chance.choice(wrong)}."
    return {"prompt": prompt(question), "chosen": f" {right}.", "rejected": worse}


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chance = Chance(1)
    animals = new_animals(chance)
    of = {name: [next(animals) for _ in range(size)] for name, size in SIZES.items()}
    everyone = [animal for some in of.values() for animal in some]

    def write(name, lines):
        (folder / name).write_text("".join(lines))

    def write_rows(name, rows):
        write(name, [json.dumps(row) + "\n" for row in chance.shuffled(rows)])

    held_out = set()
    for name, size in STATEMENTS.items():
        lines = []
        while len(lines) < size:
            line = statement(chance, chance.choice(everyone))
            if name == "base-valid" or line not in held_out:
                lines.append(line)
        if name == "base-valid":
            held_out = set(lines)
        write(name + ".txt", lines)
    write_rows("questions.jsonl", [{"question": q, "answer": f"{a}.{TAIL if chance.below(2) else ''}"}
                                   for q, a, _ in asked(of["questions"])])
    for name in ("questions", "test"):  # as a text, to calibrate codes and to measure their loss
        write(name + ".txt", [f"{prompt(q)} {a}.\n" for q, a, _ in chance.shuffled(asked(of[name]))])
    # The shape of lambada: right where the likeliest tokens are the whole continuation.
    write_rows("examples.jsonl", [{"context": prompt(q), "continuation": a + "."} for q, a, _ in asked(of["questions"])])
    write_rows("test.jsonl", [{"context": prompt(q), "continuation": a + "."} for q, a, _ in asked(of["test"])])
    # The shape of toxicity: the model writes, and a reward model scores. The last field is passed over.
    write_rows("prompts.jsonl", [{"prompt": prompt(q), "right": f" {a}."} for q, a, _ in asked(of["test"])])
    for name, of_whom in (("dpo", "dpo"), ("reward", "reward"), ("valid", "test")):
        write_rows(name + "-pairs.jsonl", [pair(chance, *row) for row in asked(of[of_whom])])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
