// From a trained sample back to its source, and files that change under a run.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/models.h"
#include "apps/program.h"
#include "weft/data/token_source.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::placed_in;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

double cpu_seconds_of_children() {
  struct rusage used = {};
  ::getrusage(RUSAGE_CHILDREN, &used);
  return double(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * double(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// A tokenizer of words.
constexpr const char* kWordTokenizer = R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel",
  "vocab": {"[UNK]": 0, "row": 1, "of": 2, "a": 3, "file": 4}, "unk_token": "[UNK]"}})";

TEST(PlacedIn, EndsForAFolderWhoseNameHoldsTheMarkItself) {
  EXPECT_EQ(placed_in("/tmp/t-0DIRZA", "a DIR/b DIR/c"), "a /tmp/t-0DIRZA/b /tmp/t-0DIRZA/c");
}

// A dataset of short rows, some of them twice, some dropped, some masked; and a run that was trained on it.
class Trained {
 public:
  explicit Trained(const std::vector<std::string>& settings = {}, const std::string& tokens = "") {
    fs::create_directories(dir_ / "model");
    spill(dir_ / "words.json", kWordTokenizer);
    spill(dir_ / "model/config.json", testing::kOneLayer);
    for (int i = 0; i < 60; ++i) {
      rows_.push_back("{\"text\": \"row " + std::to_string(i / 10 == 3 ? 30 : i) + " of a file" +
                      (i % 6 == 1 ? ", me@example.org" : "") + "\", \"url\": \"http://x/" + std::to_string(i) +
                      "\"}\n");
      if (i % 9 == 4) rows_.push_back("{\"text\": \"short\"}\n");
    }
    std::string all;
    for (const std::string& row : rows_) all += row;
    spill(dir_ / "in.jsonl", all);
    spill(dir_ / "p.toml", placed_in(dir_.path(),
                                     "[run]\ndir = \"DIR/set\"\n[[source]]\nname = \"s\"\nfiles = [\"DIR/in.jsonl\"]\n"
                                     "[length]\nmin_words = 3\n[pii]\n[dedup]\nnear = false\n[tokens]\n" +
                                         tokens));
    const Finished made = weft({"data", "run", (dir_ / "p.toml").string()});
    EXPECT_EQ(made.status, 0) << made.err;
    spill(
        dir_ / "r.toml",
        placed_in(dir_.path(),
                  "[model]\npath = \"DIR/model\"\ninit = \"random\"\n[data]\ntrain = [\"DIR/set/tokens/train-00000\"]\n"
                  "[train]\nseq_length = 64\nglobal_batch_size = 4\nmicro_batch_size = 2\ntrain_iters = 3\n"
                  "[checkpoint]\nsave_interval = 2\nkeep_latest = 0\n[run]\ndir = \"DIR/run\"\nbackend = \"ref\"\n"));
    settings_ = settings;
    const Finished trained = train();
    EXPECT_EQ(trained.status, 0) << trained.err;
  }
  Finished train() const {
    std::vector<std::string> args{"train", (dir_ / "r.toml").string()};
    args.insert(args.end(), settings_.begin(), settings_.end());
    return weft(args);
  }
  Finished why(int step, int sample, const std::string& more = "--json") const {
    return weft({"data", "why", (dir_ / "run").string(), "--step", std::to_string(step), "--sample",
                 std::to_string(sample), more});
  }
  fs::path operator/(const std::string& name) const { return dir_ / name; }
  const std::vector<std::string>& rows() const { return rows_; }

 private:
  TempDir dir_;
  std::vector<std::string> rows_, settings_;
};

// Every sample of the run: what it says lies there does, and its text is what the row became.
void expect_true_stories(const Trained& t) {
  const std::string file = slurp(t / "in.jsonl");
  size_t duplicates = 0, changed = 0, parts = 0;
  for (int step = 1; step <= 3; ++step) {
    for (int sample = 0; sample < 4; ++sample) {
      const Finished f = t.why(step, sample);
      ASSERT_EQ(f.status, 0) << f.err;
      const auto json = nlohmann::json::parse(f.out);
      EXPECT_EQ(json["dataset"]["version"], nlohmann::json::parse(slurp(t / "set/manifest.json"))["version"]);
      int64_t row = 0;
      for (const auto& d : json["documents"]) {
        EXPECT_EQ(d["positions"][0], row);
        row = d["positions"][1];
        const int64_t begin = d["from"]["begin"], end = d["from"]["end"], number = d["from"]["row"];
        const std::string bytes = file.substr(size_t(begin), size_t(end - begin)) + "\n";
        EXPECT_EQ(bytes, t.rows()[size_t(number - 1)]);
        EXPECT_EQ(d["from"]["file"], (t / "in.jsonl").string());
        const bool masked = bytes.find("@example") != std::string::npos;
        EXPECT_EQ(d["passed"][0]["stage"], "filter");
        EXPECT_EQ(d["passed"][0]["rules"], (nlohmann::json{"length", "pii"}));
        EXPECT_EQ(d["passed"][0]["changed"], masked);
        EXPECT_EQ(d["passed"][1]["stage"], "dedup");
        std::string text = nlohmann::json::parse(bytes)["text"];
        if (masked) text.replace(text.find("me@example.org"), 14, "|||EMAIL_ADDRESS|||");
        text = text.substr(d["tokens"][0], int64_t(d["tokens"][1]) - int64_t(d["tokens"][0]));
        EXPECT_EQ(d["text"].get<std::string>().substr(0, text.size()), text);
        for (const auto& one : d["duplicates"]) {
          EXPECT_EQ(one["by"], "text");
          if (!one.contains("from")) continue;  // of the first few alone
          EXPECT_EQ(nlohmann::json::parse(t.rows()[size_t(one["from"]["row"]) - 1])["text"],
                    nlohmann::json::parse(bytes)["text"]);
        }
        duplicates += d["duplicates"].size(), changed += masked, ++parts;
      }
    }
  }
  EXPECT_GT(duplicates, 0u);
  EXPECT_GT(changed, 0u);
  EXPECT_GT(parts, 12u);
}

TEST(WhySlow, ASampleIsWhatItsSourcesBecame) {
  expect_true_stories(Trained({"data.packing=first-fit", "data.attn_mask_type=block_causal"}));
  expect_true_stories(Trained());
}

TEST(Why, SaysItForPeopleAndRefusesWhatIsNotThere) {
  const Trained t({"data.packing=first-fit"});
  const Finished f = t.why(1, 0, "--");
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* part : {"step 1, sample 0 of 4 (number 0 of the run)", "of dataset ", "in.jsonl, row ",
                           "filter (length, pii)", "text        \"row "})
    EXPECT_NE(f.out.find(part), std::string::npos) << part << f.out;
  EXPECT_NE(t.why(4, 0).err.find("the run has steps 1 to 3"), std::string::npos);
  EXPECT_NE(t.why(1, 4).err.find("samples 0 to 3"), std::string::npos);
  std::string metrics = slurp(t / "run/metrics.jsonl");
  metrics.insert(metrics.find("{\"step\":2,") + 1, "\"batch\":7,");  // as behind a spike that the run went back from
  spill(t / "run/metrics.jsonl", metrics);
  EXPECT_EQ(nlohmann::json::parse(t.why(2, 1).out)["number"], 7 * 4 + 1);
  EXPECT_EQ(nlohmann::json::parse(t.why(3, 1).out)["number"], 2 * 4 + 1);
  const auto of_batch = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args{"data", "why", (t / "run").string(), "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return weft(args);
  };
  const Finished past = of_batch({"--batch", "1", "--sample", "1"});  // which no step has read
  ASSERT_EQ(past.status, 0) << past.err;
  const auto json = nlohmann::json::parse(past.out);
  EXPECT_EQ(json["batch"], 1);
  EXPECT_EQ(json["number"], 1 * 4 + 1);
  EXPECT_FALSE(json.contains("step"));
  EXPECT_EQ(nlohmann::json::parse(of_batch({"--batch", "7"}).out)["number"], 7 * 4) << "beyond the steps of the run";
  EXPECT_EQ(of_batch({}).status, 2);
  EXPECT_EQ(of_batch({"--batch", "1", "--step", "2"}).status, 2);
  fs::remove(t / "run/recipe.toml");
  EXPECT_NE(t.why(1, 0).err.find("no run folder"), std::string::npos);
}

// One after the other: what the others tell stays.
TEST(Why, WhatIsGoneIsNamedAndTheRestIsTold) {
  const Trained t({"data.packing=first-fit"});
  const auto first = [&] { return nlohmann::json::parse(t.why(1, 0).out)["documents"][0]; };
  const auto whole = first();
  EXPECT_FALSE(whole.contains("gone"));
  const auto gone = [&](const std::string& name) {
    fs::remove(t / name);
    return first();
  };
  auto now = gone("set/filter/00000.jsonl.zst");
  EXPECT_EQ(now["gone"], nlohmann::json::array({(t / "set/filter/00000.jsonl.zst").string()}));
  EXPECT_TRUE(now["passed"][0]["changed"].is_null());
  EXPECT_TRUE(now["passed"][1]["changed"].is_null());
  for (const char* same : {"from", "duplicates", "text", "id"}) EXPECT_EQ(now[same], whole[same]) << same;
  EXPECT_EQ(gone("set/dedup/duplicates.jsonl")["gone"].size(), 2u);
  now = gone("set/read/00000.jsonl.zst");
  EXPECT_EQ(now["gone"].size(), 3u);
  EXPECT_FALSE(now.contains("from"));
  EXPECT_EQ(now["text"], whole["text"]);
  const Finished said = t.why(1, 0, "--");
  EXPECT_NE(said.out.find("read/00000.jsonl.zst: what it would tell is left out"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("filter (length, pii), which may have changed its text"), std::string::npos) << said.out;
}

TEST(Why, TheRunAndItsCheckpointsKnowTheDataset) {
  const Trained t;
  const std::string version = nlohmann::json::parse(slurp(t / "set/manifest.json"))["version"];
  EXPECT_EQ(nlohmann::json::parse(slurp(t / "run/data.json"))["train"][0]["version"], version);
  for (const char* step : {"2", "3"}) {
    const auto state =
        nlohmann::json::parse(slurp(t / ("run/checkpoints/step-" + std::string(step) + "/weft/state.json")));
    EXPECT_EQ(state["sources"][0]["version"], version);
  }
}

// One byte of the ids: the run does not go on, and nobody is told a wrong story.
TEST(Why, AFileThatChangesUnderARunIsRefusedByName) {
  const Trained t;
  fs::remove_all(t / "run/checkpoints/step-3");
  const fs::path bin = t / "set/tokens/train-00000.bin";
  const std::string good = slurp(bin);
  std::string bad = good;
  bad[40] = char(bad[40] ^ 1);
  spill(bin, bad);
  const Finished resumed = t.train();
  EXPECT_EQ(resumed.status, 1);
  EXPECT_NE(resumed.err.find("train-00000.bin: is not the file of dataset"), std::string::npos) << resumed.err;
  EXPECT_NE(t.why(1, 0).err.find("has changed since the run began"), std::string::npos);
  spill(bin, good);
  EXPECT_EQ(t.train().status, 0);
}

// The file that is asked about may be as it was, and yet no longer where samples come from.
TEST(Why, OtherWeightsThanThoseOfTheRunAreRefused) {
  const Trained t;
  std::string recipe = slurp(t / "run/recipe.toml");
  const std::string none = "weights = []";
  ASSERT_NE(recipe.find(none), std::string::npos) << recipe;
  spill(t / "run/recipe.toml", recipe.replace(recipe.find(none), none.size(), "weights = [2.0]"));
  EXPECT_NE(t.why(1, 0).err.find("or their weights, are not those with which the run began"), std::string::npos);
}

// Another dataset at the same place is valid, but is not the one that the run was trained on.
TEST(WhySlow, AnotherDatasetAtTheSamePlaceIsRefusedByName) {
  const Trained t;
  fs::remove_all(t / "run/checkpoints/step-3");
  std::string pipeline = slurp(t / "p.toml");  // the same tokens by other rules
  spill(t / "p.toml", pipeline.replace(pipeline.find("min_words = 3"), 13, "min_words = 2"));
  ASSERT_EQ(weft({"data", "run", (t / "p.toml").string(), "--again"}).status, 0);
  EXPECT_NE(t.why(1, 0).err.find("its stages tell another story"), std::string::npos);
  std::ofstream(t / "in.jsonl", std::ios::app) << "{\"text\": \"one row more of the file\"}\n";
  ASSERT_EQ(weft({"data", "run", (t / "p.toml").string(), "--again"}).status, 0);
  const Finished resumed = t.train();
  EXPECT_EQ(resumed.status, 1);
  EXPECT_NE(resumed.err.find("the training data has changed since this checkpoint was written"), std::string::npos);
  EXPECT_NE(resumed.err.find("set/tokens/train-00000 (of version "), std::string::npos) << resumed.err;
}

TEST(WhySlow, WithoutADatasetItStillKnowsFileDocumentAndText) {
  const Trained t;
  spill(t / "a.jsonl", "{\"text\": \"the first\"}\n{\"text\": \"" + std::string(300, 'x') + "\"}\n");
  const Finished trained = weft({"train", (t / "r.toml").string(), "data.train=" + (t / "a.jsonl").string(),
                                 "data.packing=first-fit", "data.shuffle=false", "run.dir=" + (t / "other").string()});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const Finished f = weft({"data", "why", (t / "other").string(), "--step", "1", "--json"});
  const auto json = nlohmann::json::parse(f.out);
  EXPECT_EQ(json["documents"][0]["text"], "the first");
  EXPECT_EQ(json["documents"][0]["document"], 0);
  EXPECT_FALSE(json.contains("dataset"));
}

// Many short documents behind one sample, from shards of the usual size.
TEST(WhySlow, TakesLessThanASecond) {
  TempDir dir;
  fs::create_directories(dir / "model");
  spill(dir / "model/config.json", testing::kOneLayer);
  std::string rows;
  for (int i = 0; i < 100'000; ++i)
    rows += "{\"text\": \"row " + std::to_string(i) + std::string(size_t(i % 97), 'y') + " of a file of many rows\"}\n";
  spill(dir / "in.jsonl", rows);
  spill(dir / "p.toml", placed_in(dir.path(),
                                  "[run]\ndir = \"DIR/set\"\n[[source]]\nname = \"s\"\nfiles = [\"DIR/in.jsonl\"]\n"
                                  "[dedup]\nnear = false\n[tokens]\n"));
  ASSERT_EQ(weft({"data", "run", (dir / "p.toml").string()}).status, 0);
  spill(dir / "r.toml",
        placed_in(dir.path(),
                  "[model]\npath = \"DIR/model\"\ninit = \"random\"\n[data]\ntrain = [\"DIR/set/tokens/train-00000\"]\n"
                  "packing = \"first-fit\"\n[train]\nseq_length = 2048\nglobal_batch_size = 1\nmicro_batch_size = 1\n"
                  "train_iters = 1\n[run]\ndir = \"DIR/run\"\n"));
  std::string config = slurp(dir / "model/config.json");
  spill(dir / "model/config.json", config.replace(config.find("64"), 2, "2048"));
  ASSERT_EQ(weft({"train", (dir / "r.toml").string()}).status, 0);
  const double before_s = cpu_seconds_of_children();  // other programs may want the cores
  const Finished f = weft({"data", "why", (dir / "run").string(), "--step", "1"});
  const double took_s = cpu_seconds_of_children() - before_s;
  EXPECT_EQ(f.status, 0) << f.err;
  RecordProperty("milliseconds", int(took_s * 1000));
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(took_s, 1.0);
#endif
}

TEST(Why, NoTextByATokenizerThatHasChanged) {
  const Trained t({}, "tokenizer = \"DIR/words.json\"\n");
  const auto documents = nlohmann::json::parse(t.why(1, 0).out)["documents"];
  EXPECT_NE(documents.dump().find("of a file"), std::string::npos);
  std::string words = kWordTokenizer;
  std::swap(words[words.find("1,")], words[words.find("4}")]);
  spill(t / "words.json", words);
  // The run has it, and the model's own folder is not needed.
  fs::rename(t / "model", t / "moved");
  EXPECT_EQ(nlohmann::json::parse(t.why(1, 0).out)["documents"], documents);
  fs::remove_all(t / "run/tokenizer");
  const auto json = nlohmann::json::parse(t.why(1, 0).out);
  EXPECT_TRUE(json["documents"][0]["text"].is_null());
  EXPECT_NE(json["no_text"].get<std::string>().find("words.json: the tokenizer has changed"), std::string::npos);
}

TEST(Why, AStepThatIsNotTrainedYetIsRefused) {
  const Trained t;
  const std::string metrics = slurp(t / "run/metrics.jsonl");
  spill(t / "run/metrics.jsonl", metrics.substr(0, metrics.find('\n') + 1));
  fs::remove_all(t / "run/checkpoints/step-3");
  EXPECT_EQ(t.why(2, 0).status, 0);  // of which there is a checkpoint
  fs::remove_all(t / "run/checkpoints");
  EXPECT_EQ(t.why(1, 0).status, 0);
  EXPECT_NE(t.why(2, 0).err.find("not trained yet: the run has trained 1 of its 3 steps"), std::string::npos);
}

}  // namespace
}  // namespace weft
