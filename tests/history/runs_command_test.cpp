// `weft runs`, as a process.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "apps/models.h"
#include "apps/program.h"
#include "history/run_folders.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::MadeRun;
using testing::make_run;
using testing::make_saved;
using testing::slurp;
using testing::spill;
using testing::TempDir;

class RunsCommand : public ::testing::Test {
 protected:
  // weft runs COMMAND ... with an index of the test's own.
  Finished runs(std::vector<std::string> words) const {
    words.insert(words.begin(), "runs");
    words.insert(words.end(), {"--index", (dir_ / "runs.db").string()});
    return testing::weft(words);
  }
  nlohmann::json json_of(const Finished& f) const {
    EXPECT_EQ(f.status, 0) << f.err;
    return nlohmann::json::parse(f.out, nullptr, false);
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  TempDir dir_;
};

TEST_F(RunsCommand, ListsFiltersAndRemembersFolders) {
  make_saved(make_run(dir_ / "all/good", {.loss = 1.5}), 4);
  make_run(dir_ / "all/<script>alert(1)<", {.model = "other-model", .steps = 2});
  const Finished first = runs({"list", at("all")});
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_SAYS(first.out, "4/4");
  EXPECT_SAYS(first.out, "<script>alert(1)<");
  EXPECT_EQ(json_of(runs({"list", "--json"})).size(), 2u) << "the folder is known now";
  EXPECT_EQ(json_of(runs({"list", "--json", "--status", "finished"})).size(), 1u);
  EXPECT_EQ(json_of(runs({"list", "--json", "--status", "finished", "--status", "unfinished"})).size(), 2u);
  const auto other = json_of(runs({"list", "--json", "--model", "other"}));
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0]["step"], 2);
  EXPECT_EQ(json_of(runs({"list", "--json", "--objective", "dpo"})).size(), 0u);
  EXPECT_EQ(json_of(runs({"list", "--json", "--since", "1d"})).size(), 2u);
  EXPECT_EQ(json_of(runs({"list", "--json", "--until", "2001-02-03"})).size(), 0u);
  for (const char* day : {"yesterday", "d", "-3d", "2026-13-01", "99999999999999999999d"})
    EXPECT_EQ(runs({"list", std::string("--since=") + day}).status, 2) << day;
}

TEST_F(RunsCommand, WithoutAnyFolderItSaysWhatToDo) {
  const Finished f = runs({"show", "nothing"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "weft runs list FOLDER");
  EXPECT_EQ(runs({"list", at("nowhere")}).status, 1);
  EXPECT_EQ(testing::weft({"runs"}).status, 2);
}

TEST_F(RunsCommand, WithoutAnIndexItGoesOnWithTheFoldersNamed) {
  make_run(dir_ / "all/good");
  spill(dir_ / "runs.db", "no database at all, but a text of some length: " + std::string(200, 'x'));
  const Finished listed = runs({"list", at("all")});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_SAYS(listed.out, "4/4");
  EXPECT_SAYS(listed.err, "without an index");
  EXPECT_EQ(json_of(runs({"scan", at("all"), "--json"}))["looked_through"].size(), 1u);
  EXPECT_EQ(runs({"list"}).status, 1);
  EXPECT_EQ(runs({"gc"}).status, 1) << "other runs may read what is there";
}

// To read a pipe would be to wait for its writer.
TEST_F(RunsCommand, AReportOfARunWithAPipeInPlaceOfRecordsEnds) {
  const fs::path run = make_run(dir_ / "run");
  ASSERT_EQ(::mkfifo((run / "events.jsonl").c_str(), 0600), 0);
  const Finished f = testing::weft({"report", run.string()});
  EXPECT_EQ(f.status, 1);
  EXPECT_SAYS(f.err, "events.jsonl: is no regular file");
}

TEST_F(RunsCommand, ScanTellsProblemsAndForgets) {
  make_run(dir_ / "all/good");
  spill(dir_ / "all/good/data.json", "{");
  const auto scanned = json_of(runs({"scan", at("all"), "--json"}));
  EXPECT_EQ(scanned["runs"], 1);
  EXPECT_EQ(scanned["problems"].size(), 1u);
  EXPECT_EQ(json_of(runs({"scan", "--rebuild", "--json"}))["read_anew"], 1);
  EXPECT_EQ(runs({"scan", "--forget", at("other")}).status, 2);
  EXPECT_EQ(runs({"scan", "--forget", at("all")}).status, 0);
  EXPECT_TRUE(fs::exists(dir_ / "all/good/recipe.toml"));
  const bool has_runs = fs::exists("runs");  // where the test stands: it is looked through then
  EXPECT_SAYS(runs({"lineage", "good"}).err, has_runs ? "no such run is known" : "no runs are known");
}

TEST_F(RunsCommand, ShowAndDiffTakeFoldersThatNoIndexKnows) {
  make_run(dir_ / "a", {.held_out = {{4, 2.25}}});
  make_run(dir_ / "b", {.held_out = {{4, 2.5}}, .more = "[optimizer]\nlr = 0.1\n"});
  const Finished shown = runs({"show", at("a")});
  EXPECT_SAYS(shown.out, "held_out.loss");
  EXPECT_SAYS(shown.out, "train.train_iters");
  const Finished diff = runs({"diff", at("a"), at("b")});
  EXPECT_EQ(diff.status, 0) << diff.err;
  EXPECT_SAYS(diff.out, "optimizer.lr: they made other steps");
  const auto json = json_of(runs({"diff", at("a"), at("b"), "--json"}));
  ASSERT_EQ(json["differences"].size(), 1u);
  EXPECT_EQ(json["differences"][0]["bears_on"], "learning");
  for (const auto& row : json["results"])
    if (row["result"] == "held_out.loss") {
      EXPECT_EQ(row["better"], "a");
      EXPECT_EQ(row["b_minus_a"], "+0.25");
    }
  EXPECT_FALSE(fs::exists(dir_ / "runs.db"));
  spill(dir_ / "b/recipe.toml", "# weft wrote this: the whole recipe of the run in this folder.\n[");
  const Finished broken = runs({"diff", at("a"), at("b")});
  EXPECT_EQ(broken.status, 1);
  EXPECT_SAYS(broken.err, "cannot be compared");
  EXPECT_SAYS(broken.err, "recipe.toml");
}

TEST_F(RunsCommand, CompareHasAColumnForEachRun) {
  make_run(dir_ / "one", {.held_out = {{4, 2.5}}});
  make_run(dir_ / "two", {.loss = 1.5, .held_out = {{4, 2.25}}, .more = "[optimizer]\nlr = 0.1\n"});
  make_run(dir_ / "three", {.settings = "seed = 7\n"});
  const auto json = json_of(runs({"compare", at("one"), at("two"), at("three"), "--json"}));
  ASSERT_EQ(json["runs"].size(), 3u);
  EXPECT_EQ(json["runs"][2]["column"], "c");
  ASSERT_EQ(json["differences"].size(), 2u) << json["differences"];
  const auto &lr = json["differences"][0], &seed = json["differences"][1];
  EXPECT_EQ(lr["what"], "optimizer.lr");
  EXPECT_EQ(lr["b"], "0.1");
  EXPECT_EQ(lr["a"], lr["c"]) << "only the second differs";
  EXPECT_NE(lr["a"], lr["b"]);
  EXPECT_EQ(seed["what"], "train.seed");
  EXPECT_EQ(seed["c"], "7");
  EXPECT_EQ(seed["a"], seed["b"]);
  std::set<std::string> judged;
  for (const auto& row : json["results"]) {
    if (!row["best"].is_null()) judged.insert(row["result"].get<std::string>());
    if (row["result"] == "held_out.loss") {
      EXPECT_EQ(row["b"], 2.25);
      EXPECT_EQ(row["best"], "b");
      EXPECT_EQ(row["c"], nullptr);
    }
    if (row["result"] == "loss") { EXPECT_EQ(row["best"], "b") << "the lowest, not the first"; }
    if (row["result"] == "tokens_per_s") { EXPECT_EQ(row["best"], "a, b, c") << "all are alike"; }
  }
  for (const char* name : {"held_out.loss", "loss", "tokens_per_s"}) EXPECT_TRUE(judged.contains(name)) << name;
  const Finished text = runs({"compare", at("one"), at("two"), at("three")});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_SAYS(text.out, "weft watch");
  EXPECT_SAYS(text.out, "optimizer.lr");
  EXPECT_EQ(runs({"compare", at("one")}).status, 2);
  EXPECT_EQ(runs({"compare", at("one"), at("nowhere")}).status, 2);
}

TEST_F(RunsCommand, BestRanksByAResult) {
  make_run(dir_ / "all/a", {.held_out = {{2, 2.25}, {4, 3}}});
  make_saved(dir_ / "all/a", 2, 2.25);
  make_run(dir_ / "all/b", {.held_out = {{4, 2.5}}});
  make_run(dir_ / "all/c");
  ASSERT_EQ(runs({"list", at("all")}).status, 0);
  const auto best = json_of(runs({"best", "--by", "held_out.loss", "--json"}));
  ASSERT_EQ(best["runs"].size(), 2u);
  EXPECT_EQ(best["runs"][0]["value"], 2.25);
  EXPECT_EQ(best["runs"][0]["checkpoint"], "step-2");
  EXPECT_EQ(best["runs"][1]["checkpoint"], nullptr);
  EXPECT_EQ(json_of(runs({"best", "--by", "held_out.loss", "--highest", "--most", "1", "--json"}))["runs"][0]["value"],
            2.5);
  const Finished wrong = runs({"best", "--by", "held_out.los"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_SAYS(wrong.err, "did you mean held_out.loss?");
}

TEST_F(RunsCommand, GcRemovesNothingUnasked) {
  const fs::path run = make_run(dir_ / "all/a", {.more = "[checkpoint]\nkeep_latest = 1\n"});
  for (const int64_t step : {2, 4}) make_saved(run, step);
  ASSERT_EQ(runs({"list", at("all")}).status, 0);
  const int terminal = ::dup(STDIN_FILENO);  // whatever the tests were started from, nobody is there to be asked
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  const Finished asked = runs({"gc"});
  ::dup2(terminal, STDIN_FILENO);
  ::close(terminal);
  ::close(nothing);
  EXPECT_EQ(asked.status, 0);
  EXPECT_SAYS(asked.out, "checkpoints/step-2");
  EXPECT_SAYS(asked.err, "nothing is removed");
  EXPECT_TRUE(fs::exists(run / "checkpoints/step-2"));
  const Finished told = runs({"gc", "--yes"});
  EXPECT_EQ(told.status, 0) << told.err;
  EXPECT_SAYS(told.err, "removed 1 of 1 folders");
  EXPECT_FALSE(fs::exists(run / "checkpoints/step-2"));
  EXPECT_TRUE(fs::exists(run / "checkpoints/step-4"));
}

// Two projects, of which the index knows one: a name of the other must never mean the first one's run.
TEST_F(RunsCommand, GcTakesNoRunOfAnotherProject) {
  const fs::path known = make_run(dir_ / "p1/runs/a"), here = make_run(dir_ / "p2/runs/a");
  ASSERT_EQ(runs({"list", at("p1")}).status, 0);
  const Finished unknown = runs({"gc", "--whole", at("p2/runs/a"), "--yes"});
  EXPECT_EQ(unknown.status, 2) << unknown.out;
  EXPECT_SAYS(unknown.err, "no run that is known");
  EXPECT_EQ(runs({"gc", "--whole", "p1/runs/a", "--yes"}).status, 2) << "the end of a path is not enough";
  EXPECT_TRUE(fs::exists(known / "recipe.toml"));
  EXPECT_TRUE(fs::exists(here / "recipe.toml"));
  EXPECT_EQ(runs({"gc", "--whole", at("p1/runs/a"), "--yes"}).status, 0);
  EXPECT_FALSE(fs::exists(known));
}

TEST_F(RunsCommand, LineageIsTextJsonOrADrawing) {
  make_saved(make_run(dir_ / "all/a"), 4);
  make_saved(make_run(dir_ / "all/b", {.model = "a/checkpoints/step-4"}), 4);
  ASSERT_EQ(runs({"list", at("all")}).status, 0);
  const Finished text = runs({"lineage", "b"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_SAYS(text.out, "step-4, as model.path");
  EXPECT_SAYS(runs({"lineage", at("all/a/checkpoints/step-4")}).out, "/all/b (finished), as model.path");
  EXPECT_SAYS(runs({"lineage", "--dot"}).out, "digraph");
  EXPECT_EQ(json_of(runs({"lineage", "b", "--json"}))["edges"][0]["role"], "saved");
  EXPECT_EQ(runs({"lineage"}).status, 2);
}

// What a run itself writes is what is read.
TEST_F(RunsCommand, KnowsARunThatWasTrained) {
  fs::create_directories(dir_ / "model");
  spill(dir_ / "model/config.json", testing::kOneLayer);
  spill(dir_ / "t.txt", std::string(500, 'a'));
  spill(dir_ / "r.toml", testing::placed_in(dir_.path(),
                                            "[model]\npath = \"DIR/model\"\ninit = \"random\"\n[data]\n"
                                            "train = [\"DIR/t.txt\"]\n[train]\nseq_length = 8\nglobal_batch_size = 2\n"
                                            "micro_batch_size = 1\ntrain_iters = 2\n[run]\ndir = \"DIR/run\"\n"
                                            "backend = \"ref\"\n"));
  ASSERT_EQ(testing::weft({"train", at("r.toml")}).status, 0);
  const auto run = json_of(runs({"show", at("run"), "--json"}));
  EXPECT_EQ(run["status"], "finished");
  EXPECT_EQ(run["step"], 2);
  EXPECT_EQ(run["problems"].size(), 0u);
  ASSERT_EQ(run["attempts"].size(), 1u);
  const auto& attempt = run["attempts"][0];
  EXPECT_EQ(attempt["end"]["status"], 0);
  EXPECT_SAYS(attempt["machine"].get<std::string>(), "reference");
  EXPECT_GE(attempt["program"].get<std::string>().size(), 16u);
  EXPECT_EQ(attempt["ranks"], 1);
  EXPECT_GE(attempt["end"]["time_s"], attempt["began_s"]);
  EXPECT_EQ(run["data"].size(), 1u);
  bool has_model = false;
  for (const auto& input : run["inputs"])
    if (input["role"] == "model.path") has_model = input["path"] == fs::canonical(dir_ / "model").string();
  EXPECT_TRUE(has_model) << run["inputs"];
  EXPECT_EQ(run["checkpoints"][0]["step"], 2);

  // A start that fails is an attempt that says why; one that is refused before it owns the folder is none.
  EXPECT_EQ(testing::weft({"train", at("r.toml"), "train.seed=7"}).status, 2);
  EXPECT_EQ(json_of(runs({"show", at("run"), "--json"}))["attempts"].size(), 1u);
  fs::remove_all(dir_ / "run/checkpoints/step-2/model.safetensors");
  ASSERT_EQ(testing::weft({"train", at("r.toml")}).status, 90);
  const auto failed = json_of(runs({"show", at("run"), "--json"}));
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_EQ(failed["attempts"][1]["end"]["status"], 90);
  EXPECT_SAYS(failed["attempts"][1]["end"]["reason"].get<std::string>(), "step-2");
}

}  // namespace
}  // namespace weft
