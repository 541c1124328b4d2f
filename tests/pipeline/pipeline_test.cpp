// Whole pipelines: the same bytes for any number of threads, after an interruption, stage by stage; and their files.
#include <csignal>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "apps/program.h"
#include "pipeline/dirty_case.h"
#include "support.h"
#include "weft/base/json.h"
#include "weft/base/number_locks.h"
#include "weft/data/token_source.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::bytes_of_folder;
using testing::config_of;
using testing::config_over;
using testing::differing;
using testing::DirtyCase;
using testing::error_of;
using testing::Harness;
using testing::slurp;
using testing::small_toml;
using testing::spill;
using testing::TempDir;

TEST(PipelineSlow, GivesTheSameBytesForAnyNumberOfThreads) {
  const DirtyCase c(1000);
  for (const int threads : {1, 2, 3}) {
    Harness harness;
    harness.threads = threads;
    harness.run(c.config(std::to_string(threads)));
  }
  const auto one = c.result("1");
  EXPECT_TRUE(one == c.result("2"));
  EXPECT_TRUE(one == c.result("3"));
  EXPECT_GE(open_stage(c.dir / "1" / "read").shards.size(), 3u);
  EXPECT_TRUE(audit_dataset(c.dir / "1").problems.empty());
}

TEST(PipelineSlow, ThatWasStoppedGoesOnToTheSameBytes) {
  const DirtyCase c(1000);
  Harness whole;
  whole.run(c.config("whole"));
  int stops = 0;
  for (int64_t bytes = 100'000;; bytes += 1'500'000) {  // of work, until it is stopped
    Harness harness;
    std::atomic<bool> over{false};
    std::thread watch([&] {
      int64_t seen = 0;
      std::string stage;
      while (!over && seen < bytes) {
        const auto view = harness.progress.view();
        if (view.stage != stage) stage = view.stage;
        seen = std::max(seen, view.bytes + (stage == "read" ? 0 : 1'000'000));
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      harness.stop = true;
    });
    bool stopped = false;
    try {
      harness.run(c.config("parts"));
    } catch (const Interrupted&) { stopped = true; }
    over = true;
    watch.join();
    stops += stopped;
    if (!stopped) break;
  }
  EXPECT_GE(stops, 1);
  EXPECT_TRUE(c.result("whole") == c.result("parts"));
}

// Ends it again and again, each time a little later, by a signal of these in turn, until it is through.
void run_with_ends(const std::string& pipeline, const std::vector<int>& signals, std::map<int, int>& statuses) {
  std::mt19937 random(5);
  for (int64_t delay = 20;; delay += int64_t(random() % 30)) {
    testing::Process process({.args = {"data", "run", pipeline}});
    for (int64_t ms = 0; ms < delay && process.running(); ++ms)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (process.running()) process.send(signals[size_t(delay) % signals.size()]);
    const testing::Finished end = process.wait();
    ++statuses[end.status];
    if (end.status == 0) return;
    ASSERT_TRUE(end.status == 128 + SIGKILL || end.status == 130) << end.status << ": " << end.err;
  }
}

TEST(PipelineSlow, ThatWasKilledOrInterruptedAtAnyMomentGoesOnToTheSameBytes) {
  const DirtyCase c(3000);
  spill(c.dir / "whole.toml", c.toml("whole"));
  ASSERT_EQ(testing::weft({"data", "run", (c.dir / "whole.toml").string()}).status, 0);
  const std::map<std::string, std::vector<int>> ends = {{"killed", {SIGKILL}}, {"both", {SIGINT, SIGKILL}}};
  for (const auto& [name, signals] : ends) {
    spill(c.dir / (name + ".toml"), c.toml(name));
    std::map<int, int> statuses;
    run_with_ends((c.dir / (name + ".toml")).string(), signals, statuses);
    EXPECT_GE(statuses[128 + SIGKILL], 3) << name;
    EXPECT_EQ(testing::weft({"data", "run", (c.dir / (name + ".toml")).string()}).status, 0);
    EXPECT_EQ(differing(c.result("whole"), c.result(name)), (std::set<std::string>{})) << name;
  }
}

TEST(Pipeline, FinishedShardsAreNotDoneAgainAndStagesRunAlone) {
  const DirtyCase c;
  const PipelineConfig config = c.config("out");
  Harness harness;
  EXPECT_THROW(harness.run(config, "filter"), FileError);
  for (const char* stage : {"read", "filter", "dedup", "decontaminate", "tokens"}) harness.run(config, stage);
  Harness whole;
  whole.run(c.config("whole"));
  EXPECT_TRUE(c.result("out") == c.result("whole"));
  const auto time = fs::last_write_time(c.dir / "out/filter/00000.jsonl");
  harness.run(config);
  EXPECT_EQ(fs::last_write_time(c.dir / "out/filter/00000.jsonl"), time);
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { harness.run(config, "dedupe"); }), "did you mean dedup?");
}

TEST(Pipeline, AStageAloneWantsThoseBeforeItToBelongTogether) {
  const TempDir dir;
  const std::string end = "[dedup]\nnear = false\n[tokens]\n";
  const PipelineConfig first = config_of(small_toml(dir, "[length]\nmin_words = 1\n" + end));
  const PipelineConfig second = config_of(small_toml(dir, "[length]\nmin_words = 2\n" + end));
  Harness harness;
  harness.run(first);
  EXPECT_NE(error_of([&] { harness.run(second, "dedup"); }).find("filter: was made by other parameters"),
            std::string::npos);
  harness.again = true;
  harness.run(second, "filter");
  EXPECT_NE(error_of([&] {
              harness.run(second, "tokens");
            }).find("dedup: was made of another filter; run --stage dedup first"),
            std::string::npos);
  for (const char* stage : {"dedup", "tokens"}) harness.run(second, stage);
  EXPECT_TRUE(audit_dataset(dir / "out").problems.empty());
}

TEST(Pipeline, AnotherParameterDoesTheStageAgain) {
  const DirtyCase c;
  PipelineConfig config = c.config("out");
  Harness harness;
  harness.run(config);
  const Dataset before = open_dataset(c.dir / "out");
  config.length.min_words = 1;
  EXPECT_NE(error_of([&] { harness.run(config); }).find("filter: the dataset in"), std::string::npos);
  EXPECT_EQ(open_dataset(c.dir / "out").version, before.version);
  harness.again = true;
  harness.run(config);
  const Dataset after = open_dataset(c.dir / "out");
  EXPECT_NE(before.version, after.version);
  const auto lines = differences(before, after);
  EXPECT_NE(std::find(lines.begin(), lines.end(), "filter length.min_words: 20 -> 1"), lines.end());
  EXPECT_TRUE(differences(after, after).empty());
  config.sources[0].meta_keys = {"url"};
  harness.run(config);
  const auto keys = differences(after, open_dataset(c.dir / "out"));
  EXPECT_EQ(keys, (std::vector<std::string>{"read source \"s\".meta_keys: [] -> [\"url\"]"}));
}

TEST(Pipeline, TokensAreThoseOfTheDocumentsAndSplitByTheirTexts) {
  const DirtyCase c;
  Harness harness;
  harness.run(c.config("out"));
  const StageResult tokens = open_stage(c.dir / "out/tokens");
  std::map<uint64_t, std::string> texts;
  for (const Document& d : testing::documents_of(c.dir / "out/decontaminate")) texts[d.id.number()] = d.text;
  std::map<std::string, std::map<uint64_t, int>> times;  // train and valid: of each document
  const auto tokenizer = make_byte_tokenizer();
  for (const auto& file : tokens.manifest.at("files")) {
    const std::string prefix = file.at("prefix"), ids = slurp(c.dir / "out/tokens" / (prefix + ".documents"));
    const std::string bin = slurp(c.dir / "out/tokens" / (prefix + ".bin"));
    size_t at = 0;
    for (size_t i = 0; i < ids.size(); i += 8) {
      uint64_t id = 0;
      std::memcpy(&id, ids.data() + i, 8);
      const std::string& text = texts.at(id);
      std::string expected;
      for (const char b : text) (expected += b) += '\0';
      expected += std::string("\0\1", 2);
      ASSERT_EQ(bin.substr(at, expected.size()), expected);
      at += expected.size();
      ++times[prefix.substr(0, 5)][id];
    }
    EXPECT_EQ(at, bin.size());
  }
  EXPECT_EQ(times["train"].size() + times["valid"].size(), texts.size());
  EXPECT_NEAR(double(times["valid"].size()) / double(texts.size()), 0.1, 0.06);
  int twice = 0;
  for (const auto& [id, n] : times["train"]) twice += n == 2;
  EXPECT_NEAR(double(twice) / double(times["train"].size()), 0.5, 0.12);
}

// An expression that takes for ever on a text made for it: that document is left out, by name, and the run goes on.
TEST(PipelineSlow, ATextThatTheTokenizersExpressionGivesUpOnIsLeftOut) {
  const TempDir dir;
  spill(dir / "tokenizer.json", R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?:(a+)+)+[bc]"},
    "behavior": "Isolated"}, "model": {"type": "BPE", "vocab": {"a": 0, "o": 1, "k": 2}, "merges": []}})");
  spill(dir / "in.txt", "ok\n" + std::string(64, 'a') + "\nko\n");
  Harness harness;
  harness.run(config_over(dir / "out", "[\"" + (dir / "in.txt").string() + "\"]",
                          "separator = \"\\n\"\n[tokens]\ntokenizer = \"" + dir.path().string() + "\"\n"));
  const auto manifest = open_stage(dir / "out/tokens").manifest;
  EXPECT_EQ(manifest.at("counts").at("dropped"), (nlohmann::json{{"tokens.tokenizer", 1}}));
  EXPECT_EQ(manifest.at("samples")[0].at("id"), "0.1");
  EXPECT_NE(manifest.at("samples")[0].at("detail").get<std::string>().find("gave up"), std::string::npos);
  EXPECT_EQ(manifest.at("counts").at("documents_out"), 2);
}

TEST(Pipeline, AuditFindsEveryChange) {
  const DirtyCase c;
  Harness harness;
  harness.run(c.config("out"));
  EXPECT_TRUE(audit_dataset(c.dir / "out").problems.empty());
  spill(c.dir / "out/tokens/train-00000.bin", slurp(c.dir / "out/tokens/train-00000.bin").replace(10, 1, "x"));
  fs::remove(c.dir / "out/filter/00000.jsonl");
  EXPECT_EQ(audit_dataset(c.dir / "out").problems.size(), 2u);
  std::string manifest = slurp(c.dir / "out/manifest.json");
  manifest.replace(manifest.find("\"documents_out\": ") + 17, 1, "9");
  spill(c.dir / "out/manifest.json", manifest);
  EXPECT_THROW(audit_dataset(c.dir / "out"), FileError);
}

std::string refusal_of(const std::string& toml) {
  return testing::error_of<ConfigError>([&] { config_of(toml); });
}

TEST(Pipeline, ErrorsNameKeyValuePlaceAndTheNearestKey) {
  const std::string good = "[run]\ndir = \"d\"\n[[source]]\nname = \"a\"\nfiles = [\"f\"]\n";
  EXPECT_EQ(refusal_of(good), "");
  EXPECT_EQ(refusal_of(good + "[dedup]\njacard = 0.5\n"),
            "test.toml:7:1: dedup.jacard is no key of a pipeline; did you mean dedup.jaccard?");
  EXPECT_EQ(refusal_of(good + "[dedup]\njaccard = 2\n"),
            "test.toml:7:11: dedup.jaccard = 2: expected a number from 0 to 1");
  EXPECT_EQ(refusal_of(good + "[dedupe]\n"),
            "test.toml:6:1: [dedupe] is no section of a pipeline; did you mean [dedup]?");
  EXPECT_NE(refusal_of(good + "[bad_words]\n").find("bad_words.file is missing"), std::string::npos);
  EXPECT_NE(refusal_of(good + good.substr(15)).find("different for each source"), std::string::npos);
  EXPECT_NE(refusal_of("[run]\n").find("2 problems"), std::string::npos);
}

TEST(Pipeline, ValuesThatDropEverythingAreRefused) {
  const std::string good = "[run]\ndir = \"d\"\n[[source]]\nname = \"a\"\nfiles = [\"f\"]\n";
  EXPECT_EQ(refusal_of(good + "[language]\nkeep = [\"english\"]\n"),
            "test.toml: language.keep: \"english\" is no code of a language; did you mean \"en\"?");
  const std::pair<const char*, const char*> others[] = {
      {"he", "iw"},      {"nb", "no"},       {"nob_Latn", "no"},   {"fil", "tl"},           {"jv", "jw"},
      {"zh-Hans", "zh"}, {"zh-CN", "zh"},    {"zh_TW", "zh-Hant"}, {"zho_Hant", "zh-Hant"}, {"en-US", "en"},
      {"EN", "en"},      {"deu_Latn", "de"}, {"Hebrew", "iw"}};
  for (const auto& [code, known] : others) {
    EXPECT_SAYS(refusal_of(fmt::format("{}[language]\nkeep = [\"{}\"]\n", good, code)),
                fmt::format("did you mean \"{}\"?", known));
    EXPECT_EQ(refusal_of(fmt::format("{}[language]\nkeep = [\"{}\"]\n", good, known)), "");
  }
  for (const char* none : {"un", "xx", "xxx", "xx-Latn", "zze", "qq"})
    EXPECT_SAYS(refusal_of(fmt::format("{}[language]\nkeep = [\"{}\"]\n", good, none)),
                "is no code of a language, as \"en\" or \"zh-Hant\"; docs/formats/pipeline.md has them");
  EXPECT_EQ(refusal_of(good + "[language]\nkeep = [\"en\", \"zh\", \"zh-Hant\"]\n"), "");
  EXPECT_EQ(refusal_of(good + "[language]\nkeep = []\n").find("test.toml: language.keep is empty"), 0u);
  EXPECT_EQ(refusal_of(good + "[length]\nmin_words = 9\nmax_words = 8\n"),
            "test.toml: length.min_words = 9 is more than length.max_words = 8: every document would go");
  EXPECT_NE(refusal_of(good + "[length]\nmin_characters = 9\nmax_characters = 8\n"), "");
  EXPECT_EQ(refusal_of(good + "[length]\nmin_characters = 9\n"), "");
  EXPECT_NE(refusal_of(good + "[gopher_quality]\nmax_words = 10\n"), "");
  EXPECT_NE(refusal_of(good + "[gopher_quality]\nmin_mean_word = 11\n"), "");
  EXPECT_NE(refusal_of(good + "[perplexity]\nmodel = \"m\"\nmin = 3\nmax = 2\n"), "");
}

TEST(Pipeline, KeysWithoutEffectAreRefused) {
  const std::string good = "[run]\ndir = \"d\"\n[[source]]\nname = \"a\"\nfiles = [\"f\"]\n";
  EXPECT_EQ(refusal_of(good + "[length]\n").find("test.toml: [length] has no effect"), 0u);
  EXPECT_EQ(refusal_of(good + "[perplexity]\nmodel = \"m\"\n").find("test.toml: [perplexity] has no effect"), 0u);
  EXPECT_EQ(refusal_of(good + "[dedup]\nnear = false\njaccard = 0.5\n"),
            "test.toml: dedup.jaccard has no effect with dedup.near = false; leave it out");
  EXPECT_EQ(refusal_of(good + "[dedup]\nnear = false\n"), "");
  const TempDir dir;
  spill(dir / "a.txt", "text");
  spill(dir / "a.jsonl", "{\"text\": \"text\", \"t\": \"text\", \"u\": \"http://x\", \"m\": 1}\n");
  const auto said = [&](const std::string& files, const std::string& more) -> std::string {
    Harness harness;
    harness.again = true;
    return testing::error_of<ConfigError>(
        [&] { harness.run(config_over(dir / "out", "[\"" + (dir / files).string() + "\"]", more)); });
  };
  EXPECT_EQ(said("a.jsonl", "separator = \"x\"\n"),
            "source \"s\": source.separator has no effect: none of its files is text; leave it out");
  for (const char* key : {"text_key = \"t\"\n", "url_key = \"u\"\n", "meta_keys = [\"m\"]\n"}) {
    EXPECT_NE(said("a.txt", key).find("has no effect: none of its files is JSON, Parquet or CSV"), std::string::npos);
    EXPECT_EQ(said("a.*", key), "");
  }
  EXPECT_NE(said("a.jsonl", "messages_key = \"m\"\ntext_key = \"t\"\n").find("source.text_key has no effect"),
            std::string::npos);
}

TEST(Pipeline, ThatLeavesNoDocumentFails) {
  const TempDir dir;
  spill(dir / "in.txt", "text");
  spill(dir / "p.toml", testing::toml_over(dir / "out", "[\"" + (dir / "in.txt").string() + "\"]",
                                           "[length]\nmin_words = 2\n[tokens]\n"));
  const testing::Finished run = testing::weft({"data", "run", (dir / "p.toml").string()});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.out.find("dropped length.min_words 1"), std::string::npos) << run.out;
  EXPECT_NE(run.err.find("no document is left after filter"), std::string::npos) << run.err;
}

TEST(Pipeline, ARunFolderWithOtherFilesIsRefused) {
  const TempDir dir;
  fs::create_directories(dir / "out/read");
  spill(dir / "out/read/thesis.txt", "years of work");
  spill(dir / "in.txt", "text");
  Harness harness;
  EXPECT_THROW(harness.run(config_over(dir / "out", "[\"" + (dir / "in.txt").string() + "\"]", "")), FileError);
  EXPECT_EQ(slurp(dir / "out/read/thesis.txt"), "years of work");
  fs::create_directories(dir / "notes");
  spill(dir / "notes/n.txt", "and more");
  EXPECT_NE(error_of([&] {
              harness.run(config_over(dir / "notes", "[\"" + (dir / "in.txt").string() + "\"]", ""));
            }).find("notes: holds files that no pipeline made; choose another run.dir"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(dir / "notes/run.json"));
}

TEST(Pipeline, RunsAsACommand) {
  const DirtyCase c;
  const std::string file = (c.dir / "pipeline.toml").string(), out = (c.dir / "out").string();
  spill(file, "[run]\ndir = \"" + out + "\"\n[[source]]\nname = \"s\"\nfiles = [\"" + (c.dir / "in.jsonl").string() +
                  "\"]\n[length]\nmin_words = 20\n[tokens]\n");
  const testing::Finished run = testing::weft({"data", "run", file});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("dropped length.min_words 8"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("data.train = \"" + out + "\"\n"), std::string::npos) << run.out;
  EXPECT_EQ(testing::weft({"data", "audit", out}).status, 0);
  EXPECT_NE(testing::weft({"data", "stats", out}).out.find("314 in"), std::string::npos);
  EXPECT_EQ(testing::weft({"data", "diff", out, out}).out, "the same\n");
  const testing::Finished none = testing::weft({"data", "diff", out, (c.dir / "none").string()});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("weft data diff: error: "), std::string::npos) << none.err;
  EXPECT_EQ(testing::weft({"data", "run", file, "--stage", "nothing"}).status, 2);
  EXPECT_NE(testing::weft({"data", "diff", out}).err.find("`weft data diff --help` says more"), std::string::npos);
}

TEST(Pipeline, ASourceInOneBracketIsToldOfTwo) {
  const std::string run = "[run]\ndir = \"d\"\n", one = "[source]\nname = \"a\"\nfiles = [\"f\"]\n";
  const auto said = [](const std::string& toml) { return error_of([&] { config_of(toml); }); };
  EXPECT_EQ(said(run + one + one),
            "test.toml:6:1: a [source] beside another: each begins with [[source]], in two brackets");
  EXPECT_EQ(said(run + "[" + one.substr(0, 8) + "]" + one.substr(8) + one),
            "test.toml:6:1: a [source] beside another: each begins with [[source]], in two brackets");
  EXPECT_NE(said(run + one).find("expected [[source]]"), std::string::npos);
}

TEST(Pipeline, SaysAtItsEndWhatWasCutShortAndWhereBrokenRowsAre) {
  const TempDir dir;
  std::string rows;
  for (int i = 0; i < 300; ++i) rows += fmt::format("{{\"text\": \"document {}\"}}\n", i * 7919 % 10007);
  spill(dir / "a.jsonl", rows);
  ASSERT_EQ(std::system(("gzip '" + (dir / "a.jsonl").string() + "'").c_str()), 0);
  spill(dir / "cut.jsonl.gz", slurp(dir / "a.jsonl.gz").substr(0, 800));
  const std::string out = (dir / "out").string(), cut = (dir / "cut.jsonl.gz").string();
  spill(dir / "p.toml", testing::toml_over(out, "[\"" + cut + "\"]", "[tokens]\n"));
  const testing::Finished f = testing::weft({"data", "run", (dir / "p.toml").string()});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("warning: " + cut + ": cut short"), std::string::npos) << f.err;
  const testing::Finished stats = testing::weft({"data", "stats", out});
  for (const std::string& text : {f.out, stats.out}) {
    EXPECT_NE(text.find("broken rows are in " + out + "/read/broken-*.jsonl"), std::string::npos) << text;
    EXPECT_NE(text.find(" tokens to train on, 0 held out\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("tokens.train"), std::string::npos) << text;
  }
  EXPECT_NE(stats.out.find("input " + cut + ": 0.0 MB, cut short"), std::string::npos) << stats.out;
  Harness harness;
  harness.run(config_over(dir / "whole", "[\"" + (dir / "a.jsonl.gz").string() + "\"]", "[tokens]\n"));
  const std::string diff = testing::weft({"data", "diff", out, (dir / "whole").string()}).out;
  EXPECT_NE(diff.find("\ntokens to train on: "), std::string::npos) << diff;
}

TEST(Pipeline, FilesThatCannotBeUsedAreNamedBeforeAnyStageBegins) {
  const TempDir dir;
  spill(dir / "empty.txt", "");
  const auto named = [&](const char* file) { return "\"" + (dir / file).string() + "\"\n"; };
  spill(dir / "p.toml",
        small_toml(dir, "[bad_words]\nfile = " + named("empty.txt") + "[dedup]\n[decontaminate]\nfiles = [" +
                            named("none.jsonl") + "]\n[tokens]\ntokenizer = " + named("mytok")));
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--stage", "read"}, {"--join"}, {"--join", "--stage", "dedup"}}) {
    std::vector<std::string> args{"data", "run", (dir / "p.toml").string()};
    args.insert(args.end(), more.begin(), more.end());
    const testing::Finished f = testing::weft(args);
    EXPECT_EQ(f.status, 2);
    for (const char* what : {"\n  bad_words.file: ", "empty.txt: holds no word",
                             "\n  decontaminate.files: ", "none.jsonl: ", "\n  tokens.tokenizer: ", "mytok: "})
      EXPECT_NE(f.err.find(what), std::string::npos) << what << " is not in " << f.err;
    EXPECT_FALSE(fs::exists(dir / "out"));
  }
  const auto only = [&](const std::string& stages) {
    spill(dir / "p.toml", small_toml(dir, stages));
    return testing::weft({"data", "run", (dir / "p.toml").string()}).err;
  };
  const std::string model = only("[perplexity]\nmax = 9\nmodel = " + named("empty.txt"));
  EXPECT_NE(model.find("perplexity.model: "), std::string::npos) << model;
  const std::string chat = only("messages_key = \"m\"\n[tokens]\n");
  EXPECT_NE(chat.find("tokens.chat_template"), std::string::npos) << chat;
  EXPECT_EQ(chat.find("--template"), std::string::npos) << chat;
  EXPECT_FALSE(fs::exists(dir / "out"));
}

TEST(Pipeline, TrainNgramLeavesBrokenRowsOutAndNamesThem) {
  const TempDir dir;
  const std::string good = "{\"text\": \"some text to learn from\"}\n";
  spill(dir / "good.jsonl", good + good);
  spill(dir / "dirty.jsonl", good + "{\"text\": 3}\nno json\n" + good);
  const auto learn = [&](const char* name) {
    return testing::weft({"data", "train-ngram", (dir / name).string(), "--out", (dir / name).string() + ".ngram"});
  };
  EXPECT_EQ(learn("good.jsonl").status, 0);
  const testing::Finished dirty = learn("dirty.jsonl");
  EXPECT_EQ(dirty.status, 0) << dirty.err;
  EXPECT_NE(dirty.err.find("dirty.jsonl: row 2 at byte 36: "), std::string::npos) << dirty.err;
  EXPECT_NE(dirty.err.find("dirty.jsonl: row 3 at byte 48: "), std::string::npos) << dirty.err;
  EXPECT_NE(dirty.out.find("from 2 documents"), std::string::npos) << dirty.out;
  EXPECT_NE(dirty.out.find("2 broken rows left out"), std::string::npos) << dirty.out;
  EXPECT_EQ(slurp(dir / "dirty.jsonl.ngram"), slurp(dir / "good.jsonl.ngram"));
  const testing::Finished again = learn("good.jsonl");
  EXPECT_EQ(again.status, 2);
  EXPECT_NE(again.err.find("good.jsonl.ngram: is there already"), std::string::npos) << again.err;
  EXPECT_EQ(again.err.find("so far"), std::string::npos) << again.err;
  spill(dir / "none.jsonl", "no json\n");
  EXPECT_NE(learn("none.jsonl").err.find("no text to learn from"), std::string::npos);
}

// Each file of each stage, by turns: the run after gives the same bytes.
TEST(Pipeline, AFileThatIsLostIsMadeAgain) {
  const TempDir dir;
  const PipelineConfig config = config_of(small_toml(dir, "[length]\nmin_words = 1\n[dedup]\n[tokens]\n"));
  Harness harness;
  harness.run(config);
  const auto good = bytes_of_folder(dir / "out");
  int lost = 0;
  for (const auto& one : good) {
    if (one.first.ends_with("stage.json") || one.first.ends_with("manifest.json") || one.second.empty()) continue;
    if (++lost % 2 == 0)
      fs::remove(dir / "out" / one.first);
    else
      spill(dir / "out" / one.first, one.second.substr(1));
    harness.run(config);
    EXPECT_TRUE(bytes_of_folder(dir / "out") == good) << one.first;
  }
  EXPECT_GE(lost, 11);
  fs::remove(dir / "out/filter/00000.jsonl");
  EXPECT_NE(error_of([&] { harness.run(config, "dedup"); }).find("filter/00000.jsonl: is missing or of another size"),
            std::string::npos);
}

// The way out that the error names is one.
TEST(Pipeline, AShardThatChangedIsNamedWhereItIsNeeded) {
  const TempDir dir;
  const PipelineConfig config = config_of(small_toml(dir, "[length]\nmin_words = 1\n[dedup]\n[tokens]\n"));
  Harness harness;
  harness.run(config);
  const auto good = bytes_of_folder(dir / "out");
  for (const auto& [shard, behind] :
       std::map<std::string, std::string>{{"read/00000.jsonl", "filter/00000.jsonl"},
                                          {"filter/00000.jsonl", "dedup/00000.jsonl"},
                                          {"dedup/00000.jsonl", "tokens/train-00000.bin"}}) {
    std::string bytes = good.at(shard);
    bytes[bytes.size() / 2] ^= 1;
    spill(dir / "out" / shard, bytes);
    fs::remove(dir / "out" / behind);
    const std::string error = error_of([&] { harness.run(config); });
    EXPECT_NE(error.find(shard + ": is not the file that was written; remove it and run"), std::string::npos) << error;
    fs::remove(dir / "out" / shard);
    harness.run(config);
    EXPECT_TRUE(bytes_of_folder(dir / "out") == good) << shard;
  }
}

// The file has the same size and the same report beside it, but training refuses it: a run must make it again.
TEST(Pipeline, ATokenFileThatChangedIsMadeAgain) {
  const TempDir dir;
  const PipelineConfig config = config_of(small_toml(dir, "[tokens]\n"));
  Harness harness;
  harness.run(config);
  const auto good = bytes_of_folder(dir / "out");
  for (const char* name : {"tokens/train-00000.bin", "tokens/train-00000.idx"}) {
    std::string bytes = good.at(name);
    bytes.back() ^= 1;
    spill(dir / "out" / name, bytes);
    harness.run(config);
    EXPECT_TRUE(bytes_of_folder(dir / "out") == good) << name;
  }
}

TEST(Pipeline, ARunStaysOutOfAnotherOnesFolder) {
  const TempDir dir;
  Harness harness;
  harness.run(config_of(small_toml(dir, "")));
  const auto good = bytes_of_folder(dir / "out");
  const std::string in = "[\"" + (dir / "in.jsonl").string() + "\"]";
  for (const char* within : {"out/read", "out/more", "out/read/more"}) {
    const std::string error = error_of([&] { harness.run(testing::config_over(dir / within, in, "")); });
    EXPECT_NE(error.find("lies in the folder of another pipeline, "), std::string::npos) << error;
  }
  EXPECT_FALSE(fs::exists(dir / "out/more") || fs::exists(dir / "out/read/more"));
  EXPECT_TRUE(bytes_of_folder(dir / "out") == good);
  EXPECT_EQ(error_of([&] { harness.run(testing::config_over(dir / "out-too", in, "")); }), "");
}

TEST(Pipeline, ThatWasKilledAsItBeganGoesOn) {
  const TempDir dir;
  const PipelineConfig config = config_of(small_toml(dir, ""));
  fs::create_directories(dir / "out/read");
  spill(dir / "out/run.lock", "");
  spill(dir / "out/read/stage.json.tmp-abc123", "{");
  Harness harness;
  EXPECT_EQ(error_of([&] { harness.run(config); }), "");
  EXPECT_FALSE(fs::exists(dir / "out/read/stage.json.tmp-abc123"));
}

TEST(Pipeline, TwoRunsInOneFolderAreRefused) {
  const TempDir dir;
  const PipelineConfig config = config_of(small_toml(dir, ""));
  Harness harness;
  fs::create_directories(dir / "out");
  {
    const RunLock other(dir / "out");
    const std::string error = error_of([&] { harness.run(config); });
    EXPECT_NE(error.find("out\" is in use by another weft"), std::string::npos) << error;
    EXPECT_NE(error.find("to help it: weft data run --join"), std::string::npos) << error;
    EXPECT_FALSE(fs::exists(dir / "out/read"));
  }
  EXPECT_EQ(error_of([&] { harness.run(config); }), "");
}

TEST(Pipeline, AuditLooksAtWhatIsBesideTheShards) {
  const DirtyCase c;
  Harness harness;
  harness.run(c.config("out"));
  ASSERT_TRUE(audit_dataset(c.dir / "out").problems.empty());
  for (const char* name : {"dedup/duplicates.jsonl", "read/broken-00000.jsonl", "filter/00000.json",
                           "filter/manifest.json", "tokens/train-00000.documents"}) {
    const std::string good = slurp(c.dir / "out" / name);
    spill(c.dir / "out" / name, " " + good.substr(1));
    const Audit audit = audit_dataset(c.dir / "out");
    ASSERT_EQ(audit.problems.size(), 1u) << name;
    EXPECT_NE(audit.problems[0].find(name), std::string::npos) << audit.problems[0];
    spill(c.dir / "out" / name, good);
  }
  spill(c.dir / "out/tokens/train-00007.bin", "more");
  ASSERT_EQ(audit_dataset(c.dir / "out").problems.size(), 1u);
  EXPECT_NE(audit_dataset(c.dir / "out").problems[0].find("train-00007.bin: is no file of the dataset"),
            std::string::npos);
}

TEST(Pipeline, AuditFindsNoChangeInAnInputThatIsBroken) {
  const TempDir dir;
  spill(dir / "broken.jsonl.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10) + std::string(3 << 20, '\xff'));
  Harness harness;
  harness.run(config_over(dir / "out", "[\"" + (dir / "broken.jsonl.gz").string() + "\"]", ""));
  EXPECT_EQ(open_dataset(dir / "out").manifest.at("inputs")[0].at("bytes"), 10 + (3 << 20));
  const Audit audit = audit_dataset(dir / "out");
  EXPECT_TRUE(audit.problems.empty()) << audit.problems[0];
}

// As when a new weft has a key that the one that made the dataset had not.
TEST(Pipeline, ANewKeyAtItsDefaultDoesNotThrowADatasetAway) {
  const TempDir dir;
  const std::string toml = small_toml(dir, "[length]\nmin_words = 1\n");
  Harness harness;
  harness.run(config_of(toml));
  const auto forget = [](const fs::path& file, const std::string& key, bool of_source) {
    auto json = nlohmann::json::parse(slurp(file));
    auto& parameters = json["parameters"];
    ASSERT_EQ((of_source ? parameters["source"][0] : parameters).erase(key), 1u);
    spill(file, json.dump());
  };
  forget(dir / "out/read/stage.json", "separator", true);
  forget(dir / "out/read/stage.json", "read.max_row_mb", false);
  forget(dir / "out/filter/stage.json", "length.max_words", false);
  harness.run(config_of(toml));
  PipelineConfig other = config_of(toml);
  other.length.max_words = 7;
  EXPECT_THROW(harness.run(other), FileError);
}

}  // namespace
}  // namespace weft
