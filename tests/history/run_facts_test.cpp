// What is read from run folders, hostile ones too.
#include "weft/history/run_facts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "history/run_folders.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/number_locks.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::facts_of;
using testing::make_run;
using testing::make_saved;
using testing::slurp;
using testing::spill;
using testing::TempDir;

TEST(RunFacts, SayWhatTheRecordsSay) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a", {.held_out = {{2, 2.25}, {4, 2.75}}});
  make_saved(run, 2, 2.25);
  make_saved(run, 4, 2.75);
  const RunFacts facts = read_run_facts(run);
  EXPECT_EQ(facts.problems, std::vector<std::string>());
  EXPECT_EQ(facts.status, RunStatus::finished);
  EXPECT_EQ(facts.model, "base-model");
  EXPECT_EQ(facts.objective, "cross_entropy");
  EXPECT_EQ(facts.step, 4);
  EXPECT_EQ(facts.train_iters, 4);
  EXPECT_EQ(facts.busy_s, 6);
  EXPECT_EQ(facts.recipe.at("train.seq_length"), "8");
  EXPECT_EQ(facts.results.at("loss"), (RunResult{2.5, 4}));
  EXPECT_EQ(facts.results.at("held_out.loss"), (RunResult{2.25, 2})) << "the least, not the last";
  EXPECT_EQ(facts.results.at("tokens_per_s"), (RunResult{(3 * 100 + 3 * 200) / 6.0, 4})) << "a mean over time";
  ASSERT_EQ(facts.checkpoints.size(), 2u);
  EXPECT_EQ(facts.checkpoints[0].step, 2);
  EXPECT_EQ(facts.checkpoints[0].held_out_loss, 2.25);
  EXPECT_GT(facts.checkpoints[0].bytes, 0);
  ASSERT_EQ(facts.data.size(), 1u);
  EXPECT_EQ(facts.data[0].contents, "c0ffee");
  EXPECT_EQ(facts.results.count("lr"), 0u) << "not reached, but chosen";
}

TEST(RunFacts, AreTheSameBehindTheIndex) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a", {.held_out = {{4, 2.75}}});
  make_saved(run, 4, 2.75);
  append_attempt(run, {.began_s = 1000.5, .weft = "weft 9", .host = "h", .ranks = 2});
  append_attempt_end(run, {.time_s = 2000, .status = 88, .reason = "loss is not finite"});
  const RunFacts facts = read_run_facts(run);
  EXPECT_EQ(run_facts_of(parse_json(to_json(facts).dump(), "t"), "t"), facts);
  EXPECT_EQ(facts.status, RunStatus::failed);
  EXPECT_EQ(facts.began_s, 1000.5);
}

TEST(RunFacts, TheStatusIsThatOfTheLastAttempt) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a", {.train_iters = 9, .steps = 3});
  EXPECT_EQ(read_run_facts(run).status, RunStatus::unfinished) << "before attempts were recorded";
  append_attempt(run, {.began_s = 1});
  EXPECT_EQ(read_run_facts(run).status, RunStatus::lost);
  append_attempt_end(run, {.time_s = 2, .status = 75});
  EXPECT_EQ(read_run_facts(run).status, RunStatus::stopped);
  append_attempt(run, {.began_s = 3});
  {
    const RunLock lock(run);
    EXPECT_EQ(read_run_facts(run).status, RunStatus::running);
  }
  append_attempt_end(run, {.time_s = 4, .status = 1, .reason = "no disk"});
  const RunFacts facts = read_run_facts(run);
  EXPECT_EQ(facts.status, RunStatus::failed);
  ASSERT_EQ(facts.attempts.size(), 2u);
  EXPECT_EQ(facts.attempts[0].end->status, 75);
  EXPECT_EQ(facts.attempts[1].end->reason, "no disk");
  EXPECT_EQ(facts.began_s, 1);
}

TEST(RunFacts, ALineThatACrashToreSpoilsNoOther) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a");
  spill(run / "attempts.jsonl", "{\"attempt\":\"begun\",\"ti");
  EXPECT_TRUE(read_run_facts(run).problems.empty());
  append_attempt(run, {.began_s = 7});
  const RunFacts facts = read_run_facts(run);
  ASSERT_EQ(facts.attempts.size(), 1u);
  EXPECT_EQ(facts.attempts[0].began_s, 7);
  EXPECT_SAYS(facts.problems.at(0), "attempts.jsonl:1: ");
}

// The last save failed: all steps are done, and the run is not.
TEST(RunFacts, ARunWhoseLastSaveFailedHasFailed) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a");
  append_attempt(run, {.began_s = 1});
  append_attempt_end(run, {.time_s = 2, .status = 89});
  EXPECT_EQ(read_run_facts(run).status, RunStatus::failed);
}

TEST(RunFacts, LookingAtALockKeepsNoRunFromBeginning) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a");
  read_run_facts(run);
  EXPECT_EQ(error_of([&] { const RunLock lock(run); }), "");
}

// Where the inputs of one role are.
std::vector<std::string> inputs_of(const fs::path& run, const std::string& role) {
  std::vector<std::string> paths;
  for (const RunInput& input : read_run_facts(run).inputs)
    if (input.role == role) paths.push_back(input.path);
  return paths;
}

using Paths = std::vector<std::string>;

TEST(RunFacts, RelativePathsAreSeenFromWhereTheRunWasStarted) {
  const TempDir dir;
  const fs::path real = fs::canonical(dir.path());
  // Not recorded: the folder in which run.dir leads to the run.
  const fs::path run = make_run(real / "a", {.model = "base/checkpoints/step-2"});
  EXPECT_EQ(inputs_of(run, "model.path"), Paths{real / "base/checkpoints/step-2"});
  append_attempt(run, {.began_s = 1, .folder = "/elsewhere", .from = "/elsewhere/old/checkpoints/step-1"});
  EXPECT_EQ(inputs_of(run, "model.path"), Paths{"/elsewhere/base/checkpoints/step-2"});
  EXPECT_EQ(inputs_of(run, "--from"), Paths{"/elsewhere/old/checkpoints/step-1"});
  // As in a container, whose folders are not here: it is where run.dir says.
  make_saved(make_run(real / "base"), 2);
  EXPECT_EQ(inputs_of(run, "model.path"), Paths{real / "base/checkpoints/step-2"});
  // Moved, and not recorded: it stays as it was written.
  fs::remove(run / "attempts.jsonl");
  fs::rename(run, real / "moved");
  EXPECT_EQ(inputs_of(real / "moved", "model.path"), Paths{"base/checkpoints/step-2"});
}

// What somebody may have meant: both.
TEST(RunFacts, AnInputThatMayBeInTwoPlacesIsInBoth) {
  const TempDir dir;
  const fs::path real = fs::canonical(dir.path());
  const fs::path run = make_run(real / "now/b", {.model = "a/checkpoints/step-2"});
  append_attempt(run, {.began_s = 1, .folder = (real / "before").string()});
  for (const char* project : {"before", "now"}) make_saved(make_run(real / project / "a"), 2);
  EXPECT_EQ(inputs_of(run, "model.path"),
            (Paths{real / "before/a/checkpoints/step-2", real / "now/a/checkpoints/step-2"}));
}

TEST(RunFacts, WhateverARecipeNamesIsAnInput) {
  const TempDir dir;
  const fs::path real = fs::canonical(dir.path());
  const fs::path run =
      make_run(real / "a", {.settings = "[[phase]]\nfrom_step = 2\ndata.train = [\"later.bin\"]\n",
                            .more = "[eval]\ntasks = [\"piqa=x/piqa.jsonl\"]\n[objective]\nteacher = \"t/model\"\n"});
  ASSERT_EQ(read_run_facts(run).problems, Paths());
  EXPECT_EQ(inputs_of(run, "data.train"), Paths{real / "tokens.bin"});
  EXPECT_EQ(inputs_of(run, "phase 1: data.train"), Paths{real / "later.bin"});
  EXPECT_EQ(inputs_of(run, "eval.tasks"), Paths{real / "x/piqa.jsonl"});
  EXPECT_EQ(inputs_of(run, "objective.teacher"), Paths{real / "t/model"});
  EXPECT_EQ(inputs_of(run, "data.tokenizer"), Paths()) << "auto is no file";
  EXPECT_EQ(inputs_of(run, "data.json"), Paths()) << "its recipe names the file";
  spill(run / "data.json", R"({"format": 1, "order": "o", "train": [{"path": "old/t.bin", "contents": "c"}]})");
  EXPECT_EQ(inputs_of(run, "data.json"), Paths{real / "old/t.bin"});
}

// Every key whose value is text without a list of choices is one that names files, or is known to name none.
TEST(RunFacts, OfEveryTextKeyItIsKnownWhetherItNamesFiles) {
  const std::set<std::string> others = {
      "data.text_key",          "adapter.targets",     "parallel.order",       "run.dir",
      "parallel.memory_budget", "fleet.available",     "fleet.may_change",     "checkpoint.local_dir",
      "islands.address",        "islands.secret_file", "train.sample_prompts", "run.queue"};
  for (const KeyHelp& key : recipe_help())
    if (key.type.find("text") != std::string::npos && key.choices.empty()) {
      EXPECT_NE(names_files(key.key), others.contains(key.key)) << key.key;
    } else {
      EXPECT_FALSE(names_files(key.key)) << key.key;
    }
}

// A recipe of a later weft.
TEST(RunFacts, OfARecipeThatCannotBeUnderstoodAllThatMayBePathsAreInputs) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a", {.settings = "sparkle = \"no-path\"\n"});
  append_attempt(run, {.began_s = 1, .folder = "/p"});
  spill(run / "recipe.toml", slurp(run / "recipe.toml") + "[spark]\nfrom = ['b/checkpoints/step-1', \"/q/m\"]\n");
  const RunFacts facts = read_run_facts(run);
  EXPECT_EQ(facts.status, RunStatus::unreadable);
  EXPECT_EQ(inputs_of(run, "recipe.toml"), (Paths{"/p/b/checkpoints/step-1", "/q/m"}));
}

TEST(RunFacts, TheStampIsAnotherWhereACheckpointHasChanged) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a");
  make_saved(run, 4, 2.5);
  const std::string before = stamp_of_run(run);
  EXPECT_EQ(stamp_of_run(run), before);
  spill(run / "checkpoints/step-4/weft/state.json", "{");  // in place
  EXPECT_NE(stamp_of_run(run), before);
}

// Killed during its last save: all steps are done, and nothing has the last ones.
TEST(RunFacts, ARunWithoutAnEndIsFinishedWhereItsLastStepIsSaved) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a");
  make_saved(run, 2);
  EXPECT_EQ(read_run_facts(run).status, RunStatus::unfinished);
  append_attempt(run, {.began_s = 1});
  EXPECT_EQ(read_run_facts(run).status, RunStatus::lost);
  make_saved(run, 4);
  EXPECT_EQ(read_run_facts(run).status, RunStatus::finished);
}

// --- hostile folders ---

TEST(RunFacts, WhatIsNoRunIsRefused) {
  const TempDir dir;
  fs::create_directories(dir / "empty");
  spill(dir / "file", "");
  EXPECT_SAYS(error_of<FileError>([&] { read_run_facts(dir / "nowhere"); }), "cannot be found");
  EXPECT_SAYS(error_of<FileError>([&] { read_run_facts(dir / "file"); }), "is no folder");
  EXPECT_SAYS(error_of<FileError>([&] { read_run_facts(dir / "empty"); }), "is no run's folder");
  fs::create_directories(dir / "user");
  spill(dir / "user/recipe.toml", "[model]\npath = \"m\"\n");
  EXPECT_FALSE(is_run_folder(dir / "user")) << "a recipe that a user wrote";
  EXPECT_FALSE(is_run_folder(make_run(dir / "a.removing"))) << "on its way";
}

TEST(RunFacts, EachDamageIsNamedAndTheRestIsRead) {
  const TempDir dir;
  const auto problems = [&](const std::string& file, const std::string& content) {
    const fs::path run = make_run(dir / "a");
    make_saved(run, 4);
    spill(run / file, content);
    RunFacts facts = read_run_facts(run);
    fs::remove_all(run);
    EXPECT_EQ(facts.problems.size(), 1u) << file << ": " << content.substr(0, 40);
    EXPECT_EQ(facts.step, 4) << file;
    return facts.problems.empty() ? std::string() : facts.problems[0];
  };
  const std::string mark = slurp(make_run(dir / "a") / "recipe.toml").substr(0, 60) + "\n";
  EXPECT_SAYS(problems("recipe.toml", mark + "[model\n"), "recipe.toml:");
  EXPECT_SAYS(problems("recipe.toml", mark + "[model]\npath = \"m\"\ncolour = 3\n"), "colour");
  EXPECT_SAYS(problems("recipe.toml", mark + std::string(5 << 20, '#')), "recipe.toml: has 5242");
  EXPECT_SAYS(problems("data.json", "{"), "data.json");
  EXPECT_SAYS(problems("data.json", R"({"train": 7})"), "data.json");
  EXPECT_SAYS(problems("data.json", R"({"train": [{"path": 1, "contents": "x"}]})"), "sources.path");
  EXPECT_SAYS(problems("checkpoints/step-4/weft/state.json", "{\"format\": 2"), "step-4/weft/state.json");
  EXPECT_SAYS(problems("checkpoints/step-4/weft/state.json", std::string(100, '[')), "step-4/weft/state.json");
  EXPECT_SAYS(problems("attempts.jsonl", "7\n{\"attempt\": \"ended\", \"time\": 1}\n"), "attempts.jsonl:1: ");
}

TEST(RunFacts, DamagedRecordsArePassedOver) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a");
  const std::string good = slurp(run / "metrics.jsonl");
  spill(run / "metrics.jsonl",
        "\n{}\nnull\n{\"step\":-3}\n{\"step\":1e300,\"loss\":1}\n{\"step\":9,\"eval\":[1]}\n{\"eval\":{\"step\":1},"
        "\"step\":1e300}\n" +
            good + "{\"step\":9,\"eval\":{\"loss\":1e999,\"accuracy\":null}}\n{\"step\":9,\"loss\":0.1");
  const RunFacts facts = read_run_facts(run);
  EXPECT_EQ(facts.step, 4) << "a torn last line counts for nothing";
  EXPECT_EQ(facts.results.at("loss"), (RunResult{2.5, 4}));
  EXPECT_EQ(facts.results.count("held_out.loss"), 0u) << "no number that is not finite";
  ASSERT_EQ(facts.problems.size(), 1u);
  EXPECT_SAYS(facts.problems[0], "metrics.jsonl: 8 lines are no record");
}

TEST(RunFacts, FilesThatAreNoneAreNamed) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a");
  fs::remove(run / "metrics.jsonl");
  ASSERT_EQ(::mkfifo((run / "metrics.jsonl").c_str(), 0600), 0);  // to read it would be to wait for ever
  fs::remove(run / "data.json");
  fs::create_directories(run / "data.json");
  fs::create_symlink("attempts.jsonl", run / "attempts.jsonl");  // to itself
  const RunFacts facts = read_run_facts(run);
  ASSERT_EQ(facts.problems.size(), 3u);
  EXPECT_SAYS(facts.problems[0], "attempts.jsonl");
  EXPECT_SAYS(facts.problems[1], "data.json: is no regular file");
  EXPECT_SAYS(facts.problems[2], "metrics.jsonl: is no regular file");
}

TEST(RunFacts, ARunWithoutItsRecipeIsUnreadable) {
  const TempDir dir;
  const fs::path run = make_run(dir / "a");
  fs::remove(run / "recipe.toml");
  const RunFacts facts = read_run_facts(run);
  EXPECT_EQ(facts.status, RunStatus::unreadable);
  EXPECT_SAYS(facts.problems.at(0), "recipe.toml: is missing");
  EXPECT_EQ(facts.results.at("loss").value, 2.5) << "what it reached is known all the same";
}

TEST(RunFacts, NamesOfAnyBytesAreKept) {
  const TempDir dir;
  for (const std::string name : {"<script>alert(1)</script>", "a\nb", "\xff\xfe", "'; DROP TABLE runs; --"}) {
    std::string flat = name;
    std::replace(flat.begin(), flat.end(), '/', '_');
    fs::rename(make_run(dir / "made"), dir / flat);
    const RunFacts facts = read_run_facts(dir / flat);
    EXPECT_EQ(fs::path(facts.path).filename(), flat);
    EXPECT_EQ(facts.step, 4);
  }
}

TEST(MetricsSummary, ReadsLinesThatBlocksCut) {
  const TempDir dir;
  const fs::path file = dir / "metrics.jsonl";
  std::string all;
  for (int s = 1; s <= 20'000; ++s)  // 2.6 MB: more than two blocks
    all += fmt::format(
        "{{\"step\":{},\"loss\":{},\"aux_loss\":0.0,\"grad_norm\":1.5,\"lr\":0.0003,\"tokens_per_s\":10.0,"
        "\"step_time_s\":0.5,\"mfu\":0.5,\"eval_s\":0.25}}\n",
        s, 30'000 - s);
  spill(file, all);
  const MetricsSummary sum = summarize_metrics(file);
  EXPECT_EQ(sum.num_records, 20'000);
  EXPECT_EQ(sum.damaged_lines, 0);
  EXPECT_EQ(sum.busy_s, 15'000);
  EXPECT_EQ(sum.results.at("loss"), (RunResult{10'000, 20'000}));
  EXPECT_EQ(sum.results.at("mfu"), (RunResult{0.5, 20'000}));
  EXPECT_EQ(sum.results.count("eval_s"), 0u);
}

TEST(MetricsSummary, KnowsWhichWayResultsAreBetter) {
  for (const char* name : {"loss", "held_out.loss", "held_out.perplexity", "grad_norm", "kl", "aux_loss",
                           "xstest.over_refused", "toxicity.judged_toxic"})
    EXPECT_TRUE(less_is_better(name)) << name;
  for (const char* name : {"piqa.acc", "piqa.acc_norm", "xstest.refused", "tokens_per_s", "mfu", "held_out.accuracy",
                           "margin", "reward_chosen"})
    EXPECT_FALSE(less_is_better(name)) << name;
  EXPECT_FALSE(is_judged("piqa.acc_stderr"));
  EXPECT_TRUE(is_judged("piqa.acc"));
}

}  // namespace
}  // namespace weft
