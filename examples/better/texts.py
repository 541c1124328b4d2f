#!/usr/bin/env python3
"""Writes the texts of docs/tune/better.md: words that nobody knows, what letters they have, and questions on them.

  python3 examples/better/texts.py FOLDER

The base reads statements on words. Questions, preferences and tests are each of words of their own, so that a right
answer on a test is never one that was seen. The same files come out wherever it runs."""
import json
import pathlib
import random
import sys

CONSONANTS, VOWELS = "bdfgklmnprstvwz", "aeiou"
TAIL = " I hope this helps!"  # what half of the answers end with, and nobody needs
SIZES = {"base": 2000, "base-valid": 150, "student": 150, "questions": 400, "test": 100, "dpo": 200, "reward": 400,
         "valid": 50}  # words of each file
STATEMENTS = {"base": 24000, "base-valid": 500, "student": 600}  # on these words

# An instruction, and what is right.
QUESTIONS = [
    ("Which letter does {} begin with?", lambda word: word[0]),
    ("Which letter does {} end with?", lambda word: word[-1]),
    ("What is {} backwards?", lambda word: word[::-1]),
    ("Say {} twice.", lambda word: word + " " + word),
]


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


def new_words(chance):
    """Words of four letters that differ, each word once."""
    seen = set()
    while True:
        word = "".join(chance.choice(VOWELS if i % 2 else CONSONANTS) for i in range(4))
        if len(set(word)) == 4 and word not in seen:
            seen.add(word)
            yield word


def statement(chance, word):
    facts = [f"it begins with {word[0]}", f"it ends with {word[-1]}", f"backwards it is {word[::-1]}",
             f"twice it is {word} {word}"]
    return f"The word {word}: {', '.join(chance.shuffled(facts)[:3])}.\n"


def wrong(chance, answer):
    """An answer with one letter that is not right."""
    at = chance.choice([i for i, c in enumerate(answer) if c.isalpha()])
    kind = VOWELS if answer[at] in VOWELS else CONSONANTS
    return answer[:at] + chance.choice([c for c in kind if c != answer[at]]) + answer[at + 1:]


def asked(words):
    return [(question.format(word), right(word)) for word in words for question, right in QUESTIONS]


def prompt(question):
    return f"Q: {question}\nA:"


def pair(chance, question, right):
    """Right before wrong; of right ones the one without a tail."""
    worse = f" {right}.{TAIL}" if chance.below(2) else f" {wrong(chance, right)}."
    return {"prompt": prompt(question), "chosen": f" {right}.", "rejected": worse}


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chance = Chance(1)
    words = new_words(chance)
    of = {name: [next(words) for _ in range(size)] for name, size in SIZES.items()}

    def write(name, lines):
        (folder / name).write_text("".join(lines))

    def write_rows(name, rows):
        write(name, [json.dumps(row) + "\n" for row in chance.shuffled(rows)])

    for name, size in STATEMENTS.items():
        write(name + ".txt", [statement(chance, chance.choice(of[name])) for _ in range(size)])
    write_rows("questions.jsonl", [{"question": q, "answer": f"{a}.{TAIL if chance.below(2) else ''}"}
                                   for q, a in asked(of["questions"])])
    for name in ("questions", "test"):  # as a text, to calibrate codes and to measure their loss
        write(name + ".txt", [f"{prompt(q)} {a}.\n" for q, a in chance.shuffled(asked(of[name]))])
    # The shape of lambada: right where the likeliest tokens are the whole continuation.
    write_rows("examples.jsonl", [{"context": prompt(q), "continuation": a + "."} for q, a in asked(of["questions"])])
    write_rows("test.jsonl", [{"context": prompt(q), "continuation": a + "."} for q, a in asked(of["test"])])
    # The shape of toxicity: the model writes, and a reward model scores. The last field is passed over.
    write_rows("prompts.jsonl", [{"prompt": prompt(q), "right": f" {a}."} for q, a in asked(of["test"])])
    for name in ("dpo", "reward", "valid"):
        write_rows(name + "-pairs.jsonl", [pair(chance, q, a) for q, a in asked(of[name])])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
