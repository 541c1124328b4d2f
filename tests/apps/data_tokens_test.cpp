// weft data encode, decode and train-tokenizer, as a user runs them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/program.h"
#include "support.h"

namespace weft {
namespace {

using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

// `weft ARGS` with this standard input.
Finished fed(const std::string& args, const std::string& input) {
  TempDir dir;
  spill(dir / "in", input);
  const std::string command = "'" + std::string(testing::kProgram) + "' " + args + " < '" + (dir / "in").string() + "'";
  return testing::run({.args = {"-c", command}, .program = "sh"});
}

TEST(DataEncode, IsUndoneByDecode) {
  const std::string strings = "\"ab\"\n\"h\xc3\xa9\\n\"\n\"\"\n";
  const Finished ids = fed("data encode --tokenizer byte", strings);
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(ids.out, "[97,98]\n[104,195,169,10]\n[]\n");
  EXPECT_EQ(fed("data decode --tokenizer byte", ids.out).out, strings);
  EXPECT_EQ(fed("data encode --count --tokenizer byte", strings).out, "2\n4\n0\n");
}

TEST(DataChat, SaysWhatTheTemplateLeavesOut) {
  const std::string talk = R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])",
                    beside = R"(, "tools": [{"type": "function", "function": {"name": "f"}}],)"
                             R"( "documents": [{"text": "d"}])",
                    command = "data chat --tokenizer byte --template chatml";
  const Finished f = fed(command, "{" + talk + "}\n{" + talk + beside + "}\n");
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(std::count(f.out.begin(), f.out.end(), '\n'), 2);
  for (const char* name : {"tools", "documents"})
    EXPECT_SAYS(f.err, fmt::format("line 2: the template leaves out the \"{}\"; for training it is refused\n", name));
  EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 2) << f.err;
  const Finished masked = fed(command + " --mask", "{" + talk + beside + "}\n");
  EXPECT_NE(masked.status, 0);
  EXPECT_SAYS(masked.err, "the template leaves out the \"tools\": take a chat template that shows them");
}

TEST(DataEncode, OfAFilePrintsCountAndIds) {
  TempDir dir;
  spill(dir / "t.txt", "abc");
  const std::string file = (dir / "t.txt").string();
  EXPECT_EQ(weft({"data", "encode", "--tokenizer", "byte", "--file", file}).out, "3\n[97,98,99]\n");
  EXPECT_EQ(weft({"data", "encode", "--tokenizer", "byte", "--file", file, "--count"}).out, "3\n");
}

TEST(DataEncode, OfAFileRefusesWhatIsNoText) {
  TempDir dir;
  spill(dir / "t.zip", "PK\x03\x04 and so on");
  spill(dir / "t.parquet", "PAR1\x15 and so on");
  spill(dir / "t.txt", "abc");
  ASSERT_EQ(std::system(("gzip -k '" + (dir / "t.txt").string() + "'").c_str()), 0);
  const auto refusal = [&](const char* name) {
    const Finished f = weft({"data", "encode", "--tokenizer", "byte", "--count", "--file", (dir / name).string()});
    EXPECT_EQ(f.status, 1) << f.out;
    return f.err;
  };
  spill(dir / "cut.txt.gz", slurp(dir / "t.txt.gz").substr(0, 12));
  EXPECT_SAYS(refusal("cut.txt.gz"), "cut.txt.gz: cut short");
  EXPECT_SAYS(refusal("t.zip"), "t.zip: is a zip archive, which is not read");
  EXPECT_SAYS(refusal("t.parquet"), "t.parquet: is Parquet: --text-key names the column that is encoded");
  const std::string zipped = (dir / "t.txt.gz").string();
  EXPECT_EQ(weft({"data", "encode", "--tokenizer", "byte", "--file", zipped}).out, "3\n[97,98,99]\n");
}

TEST(DataEncode, NamesTheLineThatIsNone) {
  const std::pair<const char*, const char*> cases[] = {
      {"\"a\"\n3\n", "standard input: line 2: expected a JSON string, got 3"},
      {"\"a\"\n\"b\n", "standard input: line 2: line 1, column 3"},
      {"\"\xff\"\n", "not UTF-8"},
      {"\n", "line 1: is empty"}};
  for (const auto& [input, said] : cases) {
    const Finished f = fed("data encode --tokenizer byte", input);
    EXPECT_EQ(f.status, 1);
    EXPECT_SAYS(f.err, said);
  }
  EXPECT_SAYS(fed("data decode --tokenizer byte", "[1, 999]\n").err,
              "line 1: expected a list of ids from 0 to 256, got 999");
  EXPECT_SAYS(fed("data decode --tokenizer byte", "[1.5]\n").err, "got 1.5");
}

TEST(DataEncode, RefusesAPathWithoutATokenizer) {
  TempDir dir;
  EXPECT_SAYS(weft({"data", "encode", "--tokenizer", dir.path().string()}).err, "holds no tokenizer that weft reads");
  EXPECT_SAYS(weft({"data", "encode", "--tokenizer", (dir / "x.json").string()}).err, "x.json");
  EXPECT_EQ(weft({"data", "encode"}).status, 2);
  EXPECT_SAYS(weft({"data", "encodd"}).err, "did you mean encode?");
  EXPECT_SAYS(weft({"data", "encode", "--tokeniser", "x"}).err, "did you mean --tokenizer?");
}

TEST(DataEncode, RefusesOptionsWithoutEffect) {
  EXPECT_SAYS(fed("data encode --tokenizer byte --pattern r50k", "\"a\"\n").err, "--pattern has no effect");
  EXPECT_SAYS(fed("data decode --tokenizer byte --pattern r50k", "[97]\n").err, "--pattern has no effect");
  const Finished threads = fed("data encode --tokenizer byte --threads 2", "\"a\"\n");
  EXPECT_EQ(threads.status, 2);
  EXPECT_SAYS(threads.err, "--threads has no effect without --file");
}

TEST(DataTrainTokenizer, WritesATokenizerThatIsReadAgain) {
  TempDir dir;
  spill(dir / "t.jsonl", "{\"text\": \"low lower lowest\"}\n{\"text\": \"low low\"}\n");
  const std::string out = (dir / "tokenizer.json").string();
  const Finished f = weft({"data", "train-tokenizer", (dir / "t.jsonl").string(), "--vocab-size", "260", "--special",
                           "<|endoftext|>", "--out", out});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "3 merges of 3 wanted");
  const Finished ids = fed("data encode --parse-special --tokenizer '" + out + "'", "\" low<|endoftext|>\"\n");
  EXPECT_EQ(ids.out, "[259,0]\n") << ids.err;
  EXPECT_SAYS(weft({"data", "train-tokenizer", out, "--vocab-size", "256", "--special", "a", "--out", out}).err,
              "the bytes and special tokens alone are 257");
}

TEST(DataTrainTokenizer, ASpecialTokenIsOneWordAndFilesMayFollowIt) {
  TempDir dir;
  spill(dir / "a.txt", "low lower");
  spill(dir / "b.txt", "lowest low");
  const auto learned = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"data", "train-tokenizer", "--vocab-size", "262", "--again"});
    args.insert(args.end(), {"--out", (dir / "t.json").string()});
    return weft(args);
  };
  const std::string a = (dir / "a.txt").string(), b = (dir / "b.txt").string();
  for (const auto& args : {std::vector<std::string>{a, "--special", "<|a|>", b, "--special", "<|b|>"},
                           std::vector<std::string>{"--special", "<|a|>", "--special", "<|b|>", a, b}}) {
    const Finished f = learned(args);
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_SAYS(f.err, b + ": ");
    EXPECT_SAYS(f.out, "special token 0: \"<|a|>\"\nspecial token 1: \"<|b|>\"\n");
    EXPECT_EQ(f.out.find("special token 2"), std::string::npos) << f.out;
  }
}

TEST(DataTrainTokenizer, TakesFoldersAndLeavesOutWhatCannotBeRead) {
  TempDir dir;
  std::filesystem::create_directories(dir / "in/sub");
  spill(dir / "in/a.txt", "low lower");
  spill(dir / "in/sub/b.jsonl", "{\"text\": \"lowest low\"}\n");
  spill(dir / "in/c.html", "<p>slow</p>");
  spill(dir / "in/d.zip", "PK\x03\x04");
  std::filesystem::create_symlink(dir / "gone", dir / "in/lost.txt");
  const auto learned = [&](const std::string& from) {
    return weft({"data", "train-tokenizer", (dir / from).string(), "--vocab-size", "260", "--again", "--out",
                 (dir / "t.json").string()});
  };
  const Finished f = learned("in");
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* said : {"in/d.zip: is a zip archive", "in/lost.txt: is a link to nothing; left out",
                           "in/a.txt: 0.0 MB", "in/c.html: ", "in/sub/b.jsonl: "})
    EXPECT_SAYS(f.err, said);
  EXPECT_SAYS(learned("in/d.zip").err, "in/d.zip: is a zip archive");
  EXPECT_EQ(learned("in/d.zip").status, 1);
}

TEST(DataTrainTokenizer, MakesAFolderForATokenizerJson) {
  TempDir dir;
  spill(dir / "t.txt", "low lower lowest");
  const std::string out = (dir / "models/mine").string(), file = out + "/tokenizer.json";
  const Finished f = weft({"data", "train-tokenizer", (dir / "t.txt").string(), "--vocab-size", "260", "--out", out});
  EXPECT_SAYS(f.out, file + ": ");
  const std::string ids = fed("data encode --tokenizer '" + out + "'", "\"low\"\n").out;
  EXPECT_EQ(ids.size(), std::string("[256]\n").size());
  std::filesystem::copy_file(file, dir / "other_name");
  EXPECT_EQ(fed("data encode --tokenizer '" + (dir / "other_name").string() + "'", "\"low\"\n").out, ids);
}

TEST(DataTrainTokenizer, JudgesItsOutputBeforeTheWork) {
  TempDir dir;
  spill(dir / "t.txt", "low lower lowest");
  spill(dir / "there.json", "mine");
  const auto learn = [&](const std::string& out, const std::string& text, std::vector<std::string> more = {}) {
    std::vector<std::string> args{"data", "train-tokenizer", (dir / text).string(), "--vocab-size",
                                  "260",  "--out",           (dir / out).string()};
    args.insert(args.end(), more.begin(), more.end());
    return weft(args);
  };
  const Finished there = learn("there.json", "t.txt");
  EXPECT_EQ(there.status, 2);
  EXPECT_SAYS(there.err, "there.json: is there already; choose another name, or --again to replace it");
  EXPECT_EQ(there.err.find("MB so far"), std::string::npos) << there.err;
  EXPECT_EQ(slurp(dir / "there.json"), "mine");
  EXPECT_SAYS(learn("t.txt/a.json", "t.txt").err, "cannot be made: Not a directory");
  EXPECT_NE(learn("new/a.json", "none.txt").status, 0);
  EXPECT_FALSE(std::filesystem::exists(dir / "new"));  // the text comes first
  EXPECT_EQ(learn("there.json", "t.txt", {"--again"}).status, 0);
  EXPECT_EQ(learn("made/a.json", "t.txt").status, 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / "made"), {}), 1);
}

TEST(DataTrainTokenizer, LearnsFromWhatIsInACompressedFile) {
  TempDir dir;
  const std::string text = "{\"text\": \"low lower lowest\"}\n{\"text\": \"low low\"}\n";
  const auto learned_from = [&](const std::string& name) {
    const Finished f = weft({"data", "train-tokenizer", (dir / name).string(), "--vocab-size", "260", "--out",
                             (dir / "out.json").string(), "--again"});
    return f.status == 0 ? slurp(dir / "out.json") : f.err;
  };
  spill(dir / "t.jsonl", text);
  spill(dir / "z.jsonl", text);
  ASSERT_EQ(std::system(("gzip '" + (dir / "z.jsonl").string() + "'").c_str()), 0);
  EXPECT_EQ(learned_from("z.jsonl.gz"), learned_from("t.jsonl"));
  spill(dir / "cut.jsonl.gz", slurp(dir / "z.jsonl.gz").substr(0, 30));
  EXPECT_SAYS(learned_from("cut.jsonl.gz"), "cut.jsonl.gz: cut short");
}

TEST(DataTrainTokenizer, LearnsFromTheTextOfRowsAndPages) {
  TempDir dir;
  const auto learned_from = [&](const std::string& name, const std::string& bytes) {
    spill(dir / name, bytes);
    const Finished f = weft({"data", "train-tokenizer", (dir / name).string(), "--vocab-size", "258", "--out",
                             (dir / "out.json").string(), "--again"});
    return f.status == 0 ? slurp(dir / "out.json") : f.err;
  };
  const std::string text = learned_from("t.txt", "ab ab abc abc");
  EXPECT_SAYS(text, "merges");
  EXPECT_EQ(learned_from("t.csv", "id,text\nzzzz,ab ab abc abc\nzzzz\n"), text);
  EXPECT_EQ(learned_from("t.html", "<script>zzzz</script><p>ab ab abc abc</p>"), text);
  EXPECT_EQ(learned_from("t.warc",
                         "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: http://zzzz\r\nContent-Type: "
                         "text/plain\r\nContent-Length: 13\r\n\r\nab ab abc abc\r\n\r\n"),
            text);
  EXPECT_SAYS(learned_from("other.csv", "id,txt\nzzzz,ab\n"), "the header has no column (source.text_key) \"text\"");
  EXPECT_SAYS(learned_from("t.zip", "PK\x03\x04 and so on"), "is a zip archive, which is not read: unpack it");
}

TEST(DataChat, RendersTokenizesAndMasks) {
  TempDir dir;
  const std::string file = (dir / "t.jinja").string(), tools = (dir / "tools.json").string();
  spill(file,
        "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}"
        "{% if tools %}{{ tools | tojson }}{% endif %}");
  spill(tools, "[1]");
  const std::string base = "data chat --tokenizer byte --template '" + file + "'";
  const std::string talk = R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "yz"}])";
  EXPECT_EQ(fed(base, talk + "\n" + R"({"messages": []})" + "\n").out, "\"uxayz\"\n\"\"\n");
  EXPECT_EQ(fed(base + " --add-generation-prompt", talk).out, "\"uxayza\"\n");
  EXPECT_EQ(fed(base + " --tools '" + tools + "'", "[]").out, "\"[1]\"\n");
  EXPECT_EQ(fed(base + " --tokenize", talk).out, "{\"ids\": [117,120,97,121,122]}\n");
  EXPECT_EQ(fed(base + " --tokenize --mask", talk).out, "{\"ids\": [117,120,97,121,122], \"mask\": [0,0,0,1,1]}\n");
  const std::string share_gpt = R"({"conversations": [{"from": "human", "value": "x"}]})";
  EXPECT_EQ(fed(base + " --messages-key conversations", share_gpt).out, "\"ux\"\n");
  EXPECT_SAYS(fed(base, share_gpt).err, "it has \"conversations\": name that as the key");
  EXPECT_SAYS(fed(base, "[]\n3\n").err, "standard input: line 2: expected a list of messages");
  EXPECT_SAYS(fed(base + " --date x", "[]").err, "expected YYYY-MM-DD");
  EXPECT_SAYS(fed("data chat --tokenizer byte", "[]").err, "no chat template");
  spill(file, "\n{{ strftime_now('%d %b %Y') }}{{ 1 | frob }}");
  EXPECT_SAYS(fed(base, "[]").err, "line 2: the filter \"frob\" is not supported");
}

}  // namespace
}  // namespace weft
