// What of runs may be deleted, and what must not.
#include "weft/history/run_gc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "history/run_folders.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/host_name.h"
#include "weft/base/number_locks.h"
#include "weft/checkpoint/word_sum.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::MadeRun;
using testing::make_run;
using testing::make_saved;
using testing::slurp;
using testing::spill;
using testing::TempDir;

using Names = std::vector<std::string>;

class Gc : public ::testing::Test {
 protected:
  fs::path run(const std::string& name, const std::vector<int64_t>& saved, const MadeRun& made = {}) {
    const fs::path path = make_run(real_ / name, made);
    for (const int64_t step : saved) make_saved(path, step, 10.0 - double(step));  // later ones are better
    paths_.push_back(path);
    return path;
  }
  std::vector<RunFacts> all() const {
    std::vector<RunFacts> runs;
    for (const fs::path& path : paths_)
      if (fs::exists(path)) runs.push_back(read_run_facts(path));
    return runs;
  }
  GcPlan plan(const GcWish& wish = {}) const { return plan_gc(all(), wish); }
  GcResult remove(const GcPlan& plan, const GcWish& wish = {}) const {
    return remove_planned(plan, wish, [this] { return all(); });
  }
  // Paths below the test's folder.
  Names removable(const GcWish& wish = {}) const {
    Names names;
    for (const Removable& one : plan(wish).removable)
      names.push_back(fs::path(one.path).lexically_relative(real_).string());
    return names;
  }
  TempDir dir_;
  const fs::path real_ = fs::canonical(dir_.path());
  std::vector<fs::path> paths_;
};

constexpr const char* kKeepTwo = "[checkpoint]\nkeep_latest = 2\n";

TEST_F(Gc, OffersWhatIsOlderThanTheRecipeKeeps) {
  run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  EXPECT_EQ(removable(), (Names{"a/checkpoints/step-1", "a/checkpoints/step-2"}));
  EXPECT_GT(plan().bytes(), 0);
  EXPECT_EQ(removable({.keep = 1}), (Names{"a/checkpoints/step-1", "a/checkpoints/step-2", "a/checkpoints/step-3"}));
  EXPECT_EQ(removable({.keep = 9}), Names());
  EXPECT_SAYS(error_of<ConfigError>([&] { plan({.keep = 0}); }), "at least 1");
}

TEST_F(Gc, ARecipeThatKeepsAllKeepsAll) {
  run("a", {1, 2, 3, 4}, {.more = "[checkpoint]\nkeep_latest = 0\n"});
  EXPECT_EQ(removable(), Names());
}

TEST_F(Gc, TheBestStaysWhereFewerAreKept) {
  const fs::path path = run("a", {2, 3, 4});
  make_saved(path, 1, 0.5);
  EXPECT_EQ(removable({.keep = 1}), (Names{"a/checkpoints/step-2", "a/checkpoints/step-3"}));
}

TEST_F(Gc, OfARunThatCanGoOnFewerAreNeverKept) {
  run("a", {1, 2, 3, 4}, {.train_iters = 9, .more = kKeepTwo});
  EXPECT_EQ(removable({.keep = 1}), (Names{"a/checkpoints/step-1", "a/checkpoints/step-2"}));
}

TEST_F(Gc, WhatAnotherRunReadsStaysAndIsNamed) {
  run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  run("b", {}, {.model = "a/checkpoints/step-1"});
  EXPECT_EQ(removable(), Names{"a/checkpoints/step-2"});
  const GcPlan p = plan();
  ASSERT_EQ(p.kept.size(), 1u);
  EXPECT_EQ(p.kept[0].why, "model.path of " + (real_ / "b").string());
}

TEST_F(Gc, NothingIsOfferedWhereTheNewestIsNotWhole) {
  const fs::path path = run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  spill(path / "checkpoints/step-4/config.json", "{} ");
  EXPECT_EQ(removable(), Names());
  EXPECT_SAYS(plan().notes.at(0), "step-4: is not whole");
}

TEST_F(Gc, OffersWhatWasCutOff) {
  const fs::path path = run("a", {2, 4}, {.more = kKeepTwo});
  for (const char* name :
       {"step-5.tmp", "step-1.removing", "step-3.damaged", "step-6.damaged", "step-2.old", "mine.tmp"})
    fs::create_directories(path / "checkpoints" / name);
  fs::create_directories(path / "tokens");
  fs::create_directory_symlink(real_, path / "checkpoints/step-9.tmp");  // leads elsewhere
  EXPECT_EQ(removable(), (Names{"a/checkpoints/step-1.removing", "a/checkpoints/step-3.damaged",
                                "a/checkpoints/step-5.tmp", "a/tokens"}));
}

TEST_F(Gc, RunsThatRunOrCannotBeReadAreLeftAlone) {
  const fs::path a = run("a", {1, 2, 3, 4}, {.more = kKeepTwo}), b = run("b", {1, 2, 3, 4}, {.more = kKeepTwo});
  fs::remove(b / "recipe.toml");
  const RunLock lock(a);
  EXPECT_EQ(removable(), Names());
  EXPECT_EQ(removable({.runs = {a.string(), b.string()}, .whole = true}), Names());
  const GcPlan p = plan();
  ASSERT_EQ(p.notes.size(), 2u);
  EXPECT_SAYS(p.notes[0], "is running");
  EXPECT_SAYS(p.notes[1], "is unreadable");
}

TEST_F(Gc, WholeRunsGoWhereNoneThatStaysReadsThem) {
  const fs::path a = run("a", {4}), b = run("b", {4}, {.model = "a/checkpoints/step-4"}),
                 c = run("c", {}, {.model = "b/checkpoints/step-4"});
  EXPECT_SAYS(error_of<ConfigError>([&] { plan({.whole = true}); }), "name those");
  const auto whole = [&](const std::vector<fs::path>& of) {
    GcWish wish{.whole = true};
    for (const fs::path& one : of) wish.runs.push_back(one.string());
    return removable(wish);
  };
  EXPECT_EQ(whole({c}), Names{"c"});
  EXPECT_EQ(whole({b, c}), (Names{"b", "c"}));
  EXPECT_EQ(whole({a, b, c}), (Names{"a", "b", "c"}));
  EXPECT_EQ(whole({a}), Names());
  EXPECT_EQ(whole({a, b}), Names()) << "b stays, for c; and so does a, for b";
}

TEST_F(Gc, RemovesThePlanAndNothingElse) {
  const fs::path a = run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  const GcPlan p = plan();
  const GcResult result = remove(p);
  EXPECT_EQ(result.num_removed, 2u);
  EXPECT_EQ(result.bytes, p.bytes());
  EXPECT_EQ(result.notes, Names());
  Names left;
  for (const auto& entry : fs::directory_iterator(a / "checkpoints")) left.push_back(entry.path().filename().string());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (Names{"step-3", "step-4"}));
  EXPECT_EQ(read_run_facts(a).status, RunStatus::finished);
  EXPECT_EQ(removable(), Names());
}

// Between the question and the answer.
TEST_F(Gc, WhatIsNeededByNowStays) {
  const fs::path a = run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  const GcPlan p = plan();
  {
    const RunLock lock(a);  // it has begun to run again
    const GcResult result = remove(p);
    EXPECT_EQ(result.num_removed, 0u);
    EXPECT_SAYS(result.notes.at(0), "in use by another weft");
  }
  fs::remove_all(a / "checkpoints/step-3");
  const GcResult result = remove(p);
  EXPECT_EQ(result.num_removed, 1u);
  EXPECT_TRUE(fs::exists(a / "checkpoints/step-2")) << "one of the two newest now";
  EXPECT_FALSE(fs::exists(a / "checkpoints/step-1"));
  EXPECT_SAYS(result.notes.at(0), "step-2: stays");
}

TEST_F(Gc, RemovesWholeRuns) {
  const fs::path a = run("a", {4}), b = run("b", {}, {.model = "a/checkpoints/step-4"});
  const GcWish wish{.runs = {a.string(), b.string()}, .whole = true};
  const GcResult result = remove(plan(wish), wish);
  EXPECT_EQ(result.num_removed, 2u);
  EXPECT_TRUE(fs::is_empty(real_));
}

// A run that began to read something between the question and the answer.
TEST_F(Gc, WhatAnotherRunReadsByNowStays) {
  const fs::path a = run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  const GcPlan p = plan();
  run("b", {}, {.model = "a/checkpoints/step-1"});
  const GcResult result = remove(p);
  EXPECT_EQ(result.num_removed, 1u);
  EXPECT_TRUE(fs::exists(a / "checkpoints/step-1"));
  const GcWish wish{.runs = {a.string()}, .whole = true};
  paths_.pop_back();  // not known for a moment
  const GcPlan whole = plan(wish);
  ASSERT_EQ(whole.removable.size(), 1u);
  paths_.push_back(real_ / "b");
  EXPECT_EQ(remove(whole, wish).num_removed, 0u);
  EXPECT_TRUE(fs::exists(a));
}

// Of two that go together, the one that reads began to run again: both stay.
TEST_F(Gc, WhatARunThatStaysReadsStaysWithIt) {
  const fs::path a = run("a", {4}), b = run("b", {4}, {.model = "a/checkpoints/step-4"});
  const GcWish wish{.runs = {a.string(), b.string()}, .whole = true};
  const GcPlan p = plan(wish);
  ASSERT_EQ(p.removable.size(), 2u);
  const RunLock lock(b);
  EXPECT_EQ(remove(p, wish).num_removed, 0u);
  EXPECT_TRUE(fs::exists(a));
  EXPECT_TRUE(fs::exists(b));
}

TEST_F(Gc, WhatIsReadAsDataOrByAPhaseStays) {
  const fs::path a = run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  fs::create_directories(a / "tokens");
  spill(a / "tokens/t.bin", "");
  run("b", {}, {.settings = "[[phase]]\nfrom_step = 2\ndata.train = [\"a/tokens/t.bin\"]\n"});
  const fs::path c = run("c", {});
  std::string recipe = slurp(c / "recipe.toml");
  spill(c / "recipe.toml", recipe.insert(recipe.find("[data]\n") + 7, "tokenizer = \"a/checkpoints/step-1\"\n"));
  run("d", {}, {.more = "[eval]\ntasks = [\"piqa=a/checkpoints/step-2/piqa.jsonl\"]\n"});
  for (const RunFacts& r : all()) EXPECT_EQ(r.problems, Names()) << r.path;
  EXPECT_EQ(removable(), Names());
}

// Its run was trained in a container, or the project was moved: what it reads is not where it says.
TEST_F(Gc, WhatAnInputThatCannotBeFoundMayMeanStays) {
  run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  run("b", {}, {.model = "/workspace/runs/a/checkpoints/step-1"});
  EXPECT_EQ(removable(), Names{"a/checkpoints/step-2"});
  const GcPlan p = plan();
  ASSERT_EQ(p.kept.size(), 1u);
  EXPECT_SAYS(p.kept[0].why, "model.path of " + (real_ / "b").string() + ", perhaps");
  EXPECT_SAYS(p.notes.back(), "cannot be found");
}

TEST_F(Gc, ThroughALinkNothingIsOfferedAndAllIsSeen) {
  const fs::path a = run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  fs::create_directories(real_ / "big");
  fs::rename(a / "checkpoints", real_ / "big/a");
  fs::create_directory_symlink(real_ / "big/a", a / "checkpoints");
  EXPECT_EQ(removable({.keep = 1}), Names());
  EXPECT_SAYS(plan().notes.at(0), "is a link");
  const GcWish wish{.runs = {a.string()}, .whole = true};
  EXPECT_EQ(removable(wish), Names{"a"});
  run("b", {}, {.model = "a/checkpoints/step-1"});
  EXPECT_EQ(removable(wish), Names());
}

TEST_F(Gc, ARunInAnotherOnesFolderStaysUnlessItGoesToo) {
  const fs::path a = run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  const fs::path inner = make_run(a / "checkpoints/step-1/sweep/x");  // not known, as nothing looks into runs
  EXPECT_EQ(removable(), Names{"a/checkpoints/step-2"});
  const GcWish wish{.runs = {a.string()}, .whole = true};
  EXPECT_EQ(removable(wish), Names());
  EXPECT_SAYS(plan(wish).kept.at(0).why, "the run in it, " + inner.string());
  paths_.push_back(inner);
  EXPECT_EQ(removable(wish), Names()) << "known, but not named";
  const GcWish both{.runs = {a.string(), inner.string()}, .whole = true};
  {
    const RunLock lock(inner);
    EXPECT_EQ(removable(both), Names()) << "it runs";
  }
  EXPECT_EQ(remove(plan(both), both).num_removed, 2u);
  EXPECT_FALSE(fs::exists(a));
}

// The newest has the right names, sizes and heads, and other numbers: it is read before older ones go for it.
TEST_F(Gc, WhereTheNewestHasOtherNumbersNothingIsRemoved) {
  const fs::path a = run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  const fs::path newest = a / "checkpoints/step-4";
  const std::string head = "head", numbers = "12345678";
  spill(newest / "model.safetensors", head + numbers);
  Manifest manifest{.step = 4, .files = {}};
  manifest.files["model.safetensors"] = {
      .bytes = 12,
      .head_bytes = 4,
      .head = to_hex(hash128(head)),
      .tensors = {{.name = "w", .bytes = 8, .sum = word_sum(std::as_bytes(std::span(numbers)), 0)}}};
  manifest.add_others(newest);
  spill(newest / kManifestFile, to_text(manifest));
  spill(newest / "model.safetensors", head + "12345679");
  const GcPlan p = plan();
  EXPECT_EQ(p.removable.size(), 2u) << "nothing was read yet";
  const GcResult result = remove(p);
  EXPECT_EQ(result.num_removed, 0u);
  EXPECT_SAYS(result.notes.back(), "step-4: is not whole");
  EXPECT_TRUE(fs::exists(a / "checkpoints/step-1"));
  spill(newest / "model.safetensors", head + numbers);
  EXPECT_EQ(remove(p).num_removed, 2u);
}

// Locks do not tell on every file system whether a run goes on elsewhere.
TEST_F(Gc, ARunThatMayGoOnOnAnotherHostIsLeftAlone) {
  const fs::path a = run("a", {1, 2, 3, 4}, {.more = kKeepTwo});
  append_attempt(a, {.began_s = 1, .host = "another-host"});
  EXPECT_EQ(removable(), Names());
  EXPECT_EQ(removable({.runs = {a.string()}, .whole = true}), Names());
  EXPECT_SAYS(plan().notes.at(0), "began on host \"another-host\"");
  append_attempt_end(a, {.time_s = 2, .status = 0});
  EXPECT_EQ(removable().size(), 2u);
  append_attempt(a, {.began_s = 3, .host = name_of_host()});
  EXPECT_EQ(removable().size(), 2u) << "here locks tell";
}

TEST_F(Gc, WhatACutOffRemovalHasLeftGoes) {
  const fs::path a = run("a", {4});
  for (const char* left : {"tokens.removing", "checkpoints/step-3.damaged.removing", "checkpoints/step-1.removing"})
    fs::create_directories(a / left);
  make_run(real_ / "b.removing");
  fs::create_directories(real_ / "mine.removing");  // nothing of weft's in it
  const Names all = {"a/checkpoints/step-1.removing", "a/checkpoints/step-3.damaged.removing", "a/tokens.removing",
                     "b.removing"};
  EXPECT_EQ(removable(), all);
  EXPECT_EQ(remove(plan()).num_removed, all.size());
  EXPECT_EQ(removable(), Names());
  EXPECT_FALSE(fs::exists(real_ / "b.removing"));
  EXPECT_TRUE(fs::exists(real_ / "mine.removing"));
  EXPECT_TRUE(fs::exists(a / "checkpoints/step-4"));
}

}  // namespace
}  // namespace weft
