#!/usr/bin/env python3
"""Dirty text in every format that the pipeline reads, and a pipeline.toml with every stage:
    python3 bench/dirty_text.py DATA FOLDER [MEGABYTES]
DATA is the folder of real data (text/, eval/, tokenizers/); FOLDER gets in/, pipeline.toml and ngram_training.txt.
MEGABYTES (1000) of what is in the files when decompressed. The same arguments give the same bytes. Needs zstd and xz.

A sixth of the documents are copies of earlier ones, a sixth nearly so (a word in fifty is another); in all others a word
in four is another, so that no two are alike. Rows are cut, not UTF-8, with NUL bytes or of 100 MB; archives are cut short
or grow without end."""
import csv
import gzip
import io
import json
import pathlib
import random
import subprocess
import sys
import zipfile


class Documents:
    """Texts without end: (text, url)."""

    def __init__(self, data, seed):
        self.random = random.Random(seed)
        self.texts = list(real_texts(data))
        self.words = [w for text in self.texts[:1500] for w in text.split(" ") if w.isalpha()]
        self.earlier = []

    def next(self):
        roll = self.random.random()
        if self.earlier and roll < 1 / 6:
            text = self.random.choice(self.earlier)
        elif self.earlier and roll < 1 / 3:
            text = self.perturbed(self.random.choice(self.earlier), 0.02)
        else:
            text = self.perturbed(self.random.choice(self.texts), 0.25)
        if len(self.earlier) < 2000:
            self.earlier.append(text)
        elif roll > 0.9:
            self.earlier[self.random.randrange(2000)] = text
        if self.random.random() < 0.05:
            text += "\nWrite to jane.doe@example.org or call (283) 182-3829, from 192.0.2.7."
        return text, "https://www.Example.org:443/page/%d?utm_source=x#top" % self.random.randrange(10**7)

    def perturbed(self, text, share):
        words = text.split(" ")
        for _ in range(int(len(words) * share) + 1):
            words[self.random.randrange(len(words))] = self.random.choice(self.words)
        return " ".join(words)


def real_texts(data):
    web = data / "text/web"
    for file in [web / "openwebtext_1000.jsonl.gz", *sorted(web.glob("c4-sample*.gz"))]:
        for line in gzip.open(file, "rt", encoding="utf-8"):
            yield json.loads(line)["text"]
    for file in sorted(web.glob("*.jsonl")):
        for line in open(file, encoding="utf-8"):
            yield json.loads(line)["text"]
    for line in gzip.open(data / "text/books_train.jsonl.gz", "rt", encoding="utf-8"):
        text = json.loads(line)["text"]
        for at in range(0, len(text), 8000):
            yield text[at:at + 8000]
    wiki = open(data / "text/wikitext2/wiki.test.raw", encoding="utf-8").read()
    yield from (part for part in wiki.split("\n = ") if len(part) > 400)
    with zipfile.ZipFile(data / "text/multilingual/udhr2.zip") as rights:
        for name in sorted(rights.namelist()):
            if name.endswith(".txt"):
                yield rights.read(name).decode("utf-8", "replace").replace("\0", "")


class Compressed:
    """A file that is written through gzip, zstd or xz, by its name."""

    def __init__(self, path):
        self.file = open(path, "wb")
        command = {".gz": ["gzip", "-n1"], ".zst": ["zstd", "-q1"], ".xz": ["xz", "-0"]}.get(path.suffix, ["cat"])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self.file)

    def __enter__(self):
        return self.process.stdin

    def __exit__(self, *_):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit("a compressor failed")
        self.file.close()


def write_jsonl(path, documents, size):
    with Compressed(path) as out:
        written = n = 0
        while written < size:
            text, url = documents.next()
            row = json.dumps({"text": text, "url": url, "n": n}, ensure_ascii=n % 3 == 0).encode()
            if n % 97 == 0:
                row = row[:len(row) // 2]
            if n % 101 == 0:
                row = row.replace(b"e", b"\xe9\xff", 2)
            if n % 103 == 0:
                row = row.replace(b" ", b"\0", 3)
            written += out.write(row + b"\n")
            n += 1


def write_csv(path, documents, size):
    with Compressed(path) as out:
        out.write(b"id,text,url\r\n")
        written = n = 0
        while written < size:
            text, url = documents.next()
            row = io.StringIO()
            csv.writer(row).writerow([n, text, url])
            row = row.getvalue().encode()
            if n % 1000 == 999:
                row = b'7,"not closed,' + row[20:60].replace(b'"', b"") + b"\r\n"
            written += out.write(row)
            n += 1


def write_text(path, documents, size):
    with Compressed(path) as out:
        written = 0
        while written < size:
            written += out.write(documents.next()[0].encode() + b"\n<|end|>\n")


def write_warc(path, documents, size):
    """Each record is a gzip member of its own, as crawlers write them."""
    encodings = ["utf-8", "iso-8859-1", "windows-1252"]
    written = n = 0
    with open(path, "wb") as out:
        while written < size:
            text, url = documents.next()
            encoding = encodings[n % 3]
            paragraphs = "".join("<p>%s</p>\n" % part.replace("<", "&lt;") for part in text.split("\n"))
            page = ("<html><head><title>Page</title><script>var x = 1;</script></head><body><nav><a href=/>Home</a></nav>"
                    "<h1>Page %d</h1>%s<footer>Terms of use</footer></body></html>" % (n, paragraphs))
            http = (b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=%s\r\n\r\n" % encoding.encode()
                    + page.encode(encoding, "xmlcharrefreplace"))
            record = (b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: %s\r\nContent-Type: application/http\r\n"
                      b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (url.encode(), len(http), http))
            out.write(gzip.compress(record, 1))
            written += len(record)
            n += 1


def write_hostile(folder):
    with Compressed(folder / "bomb.jsonl.gz") as out:
        for _ in range(200):
            out.write(b" " * (1 << 20))
    with open(folder / "long_line.jsonl", "wb") as out:
        out.write(b'{"text": "' + b"x" * 100_000_000 + b'"}\n{"text": "after the long line"}\n')
    for name in ["part-0.jsonl.gz", "part-2.jsonl.xz", "part-1.jsonl.zst"]:
        whole = (folder / name).read_bytes()
        (folder / ("cut-" + name)).write_bytes(whole[:len(whole) // 50])
    (folder / "noise.jsonl").write_bytes(random.Random(7).randbytes(3_000_000))


PIPELINE = """[run]
dir = "{out}"

[[source]]
name = "web"
files = ["{folder}/in/*.jsonl*", "{folder}/in/*.csv", "{folder}/in/*.warc.gz"]

[[source]]
name = "texts"
files = ["{folder}/in/*.txt*"]
separator = "\\n<|end|>\\n"
invalid_text = "repair"

[length]
min_characters = 100

[language]
[c4]
min_sentences = 3
[gopher_quality]
[symbols]
[gopher_repetition]
[bad_words]
file = "{data}/text/web/badwords_en.txt"
max_hits = 3
[perplexity]
model = "{folder}/english.ngram"
max = 12
[pii]
[dedup]
urls = true
[decontaminate]
files = ["{data}/eval/arc_easy.jsonl", "{data}/eval/piqa.jsonl", "{data}/eval/winogrande.jsonl"]
[tokens]
tokenizer = "{data}/tokenizers/gpt2"
valid_fraction = 0.01
"""


def main():
    data, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    size = int(float(sys.argv[3] if len(sys.argv) > 3 else 1000) * 1e6)
    inputs = folder / "in"
    inputs.mkdir(parents=True, exist_ok=True)
    documents = Documents(data, 1)
    write_jsonl(inputs / "part-0.jsonl.gz", documents, size * 3 // 10)  # one large archive
    write_jsonl(inputs / "part-1.jsonl.zst", documents, size // 10)
    write_jsonl(inputs / "part-2.jsonl.xz", documents, size // 10)
    write_jsonl(inputs / "part-3.jsonl", documents, size // 10)
    write_csv(inputs / "table.csv", documents, size // 10)
    write_warc(inputs / "pages.warc.gz", documents, size // 5)
    write_text(inputs / "all.txt.gz", documents, size // 10)
    write_hostile(inputs)
    (folder / "ngram_training.txt").write_text("\n".join(documents.texts[:1500]), encoding="utf-8")
    (folder / "pipeline.toml").write_text(PIPELINE.format(out=folder / "out", folder=folder, data=data))


if __name__ == "__main__":
    main()
