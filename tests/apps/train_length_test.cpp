// How long a run is, and where it begins, from the outside: more steps than at first, epochs, --from, the best
// checkpoints.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/models.h"
#include "apps/program.h"
#include "weft/base/hashing.h"
#include "weft/checkpoint/manifest.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

// 64 samples of 16 tokens are trained, or held out.
class RunPlace {
 public:
  RunPlace() {
    fs::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kOneLayer);
    std::string text;
    for (int i = 0; text.size() < 1024; ++i) text += "Line " + std::to_string(i * i) + " of a text.\n";
    spill(dir_ / "text.txt", text.substr(0, 1024));
    spill(dir_ / "r.toml", "[model]\npath = \"" + at("model") + "\"\ninit = \"random\"\n[data]\ntrain = \"" +
                               at("text.txt") +
                               "\"\n[train]\nseq_length = 16\nglobal_batch_size = 4\nmicro_batch_size = 4\n"
                               "[optimizer]\nlr = 1e-2\n[checkpoint]\nkeep_latest = 0\n[run]\nbackend = \"ref\"\n");
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  fs::path checkpoint(const std::string& run, int64_t step) const {
    return dir_ / run / "checkpoints" / ("step-" + std::to_string(step));
  }
  Finished train(const std::string& run, std::vector<std::string> settings) const {
    std::vector<std::string> args{"train", at("r.toml"), "run.dir=" + at(run)};
    args.insert(args.end(), settings.begin(), settings.end());
    return weft(args);
  }
  void expect_same_end(const std::string& a, const std::string& b, int64_t step) const {
    for (const char* file : {"model.safetensors", "weft/optimizer.safetensors", "weft/state.json"}) {
      ASSERT_TRUE(fs::exists(checkpoint(a, step) / file)) << a;
      EXPECT_TRUE(slurp(checkpoint(a, step) / file) == slurp(checkpoint(b, step) / file)) << file << " differs";
    }
  }

 private:
  TempDir dir_;
};

std::string iters(int64_t n) { return "train.train_iters=" + std::to_string(n); }

TEST(TrainLength, ARunThatHasEndedGoesOnWithMoreStepsAsIfItHadBegunWithThem) {
  const RunPlace p;
  const std::string decay = "optimizer.lr_decay_iters=3";
  ASSERT_EQ(p.train("whole", {iters(6), decay}).status, 0);
  ASSERT_EQ(p.train("grown", {iters(3), decay}).status, 0);
  const Finished f = p.train("grown", {iters(6), decay});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "train.train_iters is 6, it was 3; the learning rate goes on as it would have");
  p.expect_same_end("whole", "grown", 6);
  EXPECT_SAYS(slurp(p.at("grown/recipe.toml")), "train_iters = 6");
}

TEST(TrainLength, AScheduleThatFollowsTheEndIsToldWithWhatKeepsIt) {
  const RunPlace p;
  ASSERT_EQ(p.train("run", {iters(4)}).status, 0);
  fs::copy(p.at("run"), p.at("kept"), fs::copy_options::recursive);
  Finished f = p.train("run", {iters(8)});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "now comes to its end at step 8, not 4: it is 0.005 in the next step, and would have been 0 ");
  EXPECT_SAYS(f.err, "optimizer.lr_decay_iters=4 keeps that");
  f = p.train("kept", {iters(8), "optimizer.lr_decay_iters=4"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "the learning rate goes on as it would have");
  // Another end of its own is another recipe.
  EXPECT_SAYS(p.train("kept", {iters(9), "optimizer.lr_decay_iters=5"}).err,
              "optimizer.lr_decay_iters: 4 there, 5 here");
  f = p.train("kept", {iters(8), "optimizer.lr_decay_iters=4", "optimizer.lr=0.125"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "holds a run of another recipe; choose another run.dir (to go on from that run's weights there: ");
  EXPECT_SAYS(f.err, "kept/checkpoints/step-8 model.init=pretrained)");
  EXPECT_SAYS(f.err, "What may change as a run goes on: the keys that docs/formats/recipe.md marks as free");
  f = p.train("kept", {iters(7), "optimizer.lr_decay_iters=4"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "train.train_iters = 7, but ");
  EXPECT_SAYS(slurp(p.at("kept/recipe.toml")), "train_iters = 8");
}

TEST(TrainLength, FromAChosenCheckpointARunGoesOnInAFolderOfItsOwn) {
  const RunPlace p;
  ASSERT_EQ(p.train("run", {iters(6), "checkpoint.save_interval=2"}).status, 0);
  const std::string from = p.checkpoint("run", 2).string();
  fs::copy(from, p.at("moved"), fs::copy_options::recursive);
  for (const std::string& checkpoint : {from, p.at("moved")}) {
    const std::string name = checkpoint == from ? "second" : "third";
    Finished f = p.train(name, {iters(6), "--from", checkpoint});
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_SAYS(f.err, "checkpoints/step-2, after step 2");
    p.expect_same_end("run", name, 6);
    f = p.train(name, {iters(6), "--from", checkpoint});
    EXPECT_EQ(f.status, 2);
    EXPECT_SAYS(f.err, "has a run already");
    EXPECT_EQ(p.train(name, {iters(6)}).status, 0);  // goes on by itself
  }
  EXPECT_SAYS(slurp(p.at("second/metrics.jsonl")), "\"step\":3");
  EXPECT_EQ(slurp(p.at("second/metrics.jsonl")).find("\"step\":2,"), std::string::npos);
}

TEST(TrainLength, AChosenCheckpointIsCheckedByAllRanksBeforeAnythingIsMade) {
  const RunPlace p;
  ASSERT_EQ(p.train("run", {iters(2), "train.micro_batch_size=2"}).status, 0);
  const std::string from = p.checkpoint("run", 2).string();
  const std::vector<std::string> settings{iters(3), "--from", from, "parallel.dp=2", "train.micro_batch_size=2"};
  Finished f = p.train("new", settings);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(fs::exists(p.checkpoint("new", 3)));
  const fs::path far = "/dev/shm/weft-test-" + std::to_string(getpid());  // no file there has a second name elsewhere
  fs::copy(from, far, fs::copy_options::recursive);
  ASSERT_EQ(p.train("far", {iters(3), "--from", far.string(), "parallel.dp=2", "train.micro_batch_size=2"}).status, 0);
  fs::remove_all(far);
  p.expect_same_end("new", "far", 3);
  std::string weights = slurp(fs::path(from) / "model.safetensors");
  weights.back() = char(weights.back() ^ 1);
  spill(fs::path(from) / "model.safetensors", weights);
  f = p.train("another", settings);
  EXPECT_EQ(f.status, 1) << f.err;
  EXPECT_SAYS(f.err, " is not what was saved");
  EXPECT_FALSE(fs::exists(p.at("another")));
}

TEST(TrainLength, WhatIsNoCheckpointOfThisRecipeIsRefusedAndNothingIsMade) {
  const RunPlace p;
  ASSERT_EQ(p.train("run", {iters(2)}).status, 0);
  const std::string from = p.checkpoint("run", 2).string();
  const auto refused = [&](std::vector<std::string> settings, const std::string& says) {
    const Finished f = p.train("new", std::move(settings));
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_SAYS(f.err, says);
    EXPECT_FALSE(fs::exists(p.at("new")));
  };
  refused({iters(4), "--from", p.at("run")}, "name one of its checkpoints, as " + from);
  refused({iters(4), "--from", p.at("model")}, "is a model without the state of a run");
  refused({iters(4), "--from", p.at("none")}, "no such folder");
  refused({iters(4), "--from", from, "train.seed=7"}, "train.seed: 1234 there, 7 here");
  refused({iters(1), "--from", from}, "is of step 2");
}

TEST(TrainLength, ARunFromACheckpointThatIsRefusedLateLeavesNothing) {
  const RunPlace p;
  ASSERT_EQ(p.train("run", {iters(2)}).status, 0);
  spill(p.at("text.txt"), slurp(p.at("text.txt")) + "More.\n");
  const Finished f = p.train("new", {iters(3), "--from", p.checkpoint("run", 2).string()});
  EXPECT_EQ(f.status, 1);
  EXPECT_SAYS(f.err, "the training data has changed since this checkpoint was written: " + p.at("text.txt"));
  EXPECT_FALSE(fs::exists(p.at("new")));
}

TEST(TrainLength, EpochsBecomeStepsOnceTheDataIsKnown) {
  const RunPlace p;
  const Finished plan = weft({"plan", p.at("r.toml"), "train.epochs=0.5"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_SAYS(plan.out, "how many steps is not known yet");
  Finished f = p.train("run", {"train.epochs=0.5"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "train.epochs = 0.5: 8 steps");
  EXPECT_TRUE(fs::exists(p.checkpoint("run", 8)));
  for (const fs::path& recipe : {fs::path(p.at("run/recipe.toml")), p.checkpoint("run", 8) / "weft/recipe.toml"}) {
    EXPECT_SAYS(slurp(recipe), "train_iters = 8");
    EXPECT_SAYS(slurp(recipe), "epochs = 0.0");
  }
  EXPECT_SAYS(weft({"plan", p.at("r.toml"), "train.epochs=0.5"}).out, "train.epochs = 0.5: 8 steps of 4 samples");
  EXPECT_SAYS(weft({"plan", p.at("r.toml"), "train.epochs=0.5", "--json"}).out, "\"train_iters\": 8");
  EXPECT_SAYS(weft({"plan", p.at("r.toml"), "train.epochs=0.55", "--json"}).out, "\"train_iters\": 9");  // 8.8
  // As steps: the same run, with the same learning rates.
  ASSERT_EQ(p.train("steps", {iters(8)}).status, 0);
  p.expect_same_end("steps", "run", 8);
  EXPECT_EQ(p.train("run", {"train.epochs=0.5"}).status, 0);
  f = p.train("run", {"train.epochs=0.75"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "train.train_iters is 12, it was 8");
  f = p.train("run2", {"train.epochs=0.5", "optimizer.lr_warmup_iters=9"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "expected at most train.train_iters = 8");
}

TEST(TrainLength, HowOftenARunSeesItsDataIsToldAndIsAWarningWhereItIsOften) {
  const RunPlace p;
  EXPECT_SAYS(p.train("once", {iters(8)}).err, "the run's 8 steps of 4 samples see its 64 samples 0.5 times");
  const Finished f = p.train("often", {"train.epochs=12", "train.global_batch_size=64"});
  EXPECT_SAYS(f.err,
              "warning: the run's 12 steps of 64 samples see its 64 samples 12 times: it will know them by heart");
}

TEST(TrainLength, TheBestCheckpointsAreKeptBesideTheNewestAlsoWhenItGoesOn) {
  const RunPlace p;
  spill(p.at("held.txt"), slurp(p.at("text.txt")).substr(0, 300));
  // A learning rate that goes up and up makes it worse in the end.
  const std::vector<std::string> settings{"data.valid=" + p.at("held.txt"),
                                          "train.eval_interval=3",
                                          "checkpoint.keep_latest=1",
                                          "checkpoint.keep_best=2",
                                          "optimizer.lr=0.6",
                                          "optimizer.lr_warmup_iters=24",
                                          "optimizer.lr_decay_style=constant",
                                          "optimizer.lr_decay_iters=24"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), settings.begin(), settings.end());
    return more;
  };
  ASSERT_EQ(p.train("whole", with({iters(24)})).status, 0);
  std::map<int64_t, double> losses;
  std::istringstream lines(slurp(p.at("whole/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);)
    if (const auto json = nlohmann::json::parse(line); json.contains("eval"))
      losses[json["step"]] = json["eval"]["loss"];
  ASSERT_EQ(losses.size(), 8u);
  std::vector<std::pair<double, int64_t>> order;
  for (const auto& [step, loss] : losses) order.emplace_back(loss, step);
  std::sort(order.begin(), order.end());
  ASSERT_NE(order[0].second, 24);
  for (const auto& [step, loss] : losses) {
    const bool kept = step == 24 || step == order[0].second || step == order[1].second;
    EXPECT_EQ(fs::exists(p.checkpoint("whole", step)), kept) << step;
  }
  const auto inspected = nlohmann::json::parse(weft({"inspect", p.at("whole"), "--json"}).out);
  EXPECT_EQ(inspected["best_checkpoint"], "step-" + std::to_string(order[0].second));
  EXPECT_EQ(nlohmann::json::parse(weft({"inspect", p.checkpoint("whole", order[0].second).string(), "--json"})
                                      .out)["progress"]["held_out_loss"],
            order[0].first);
  for (const int64_t part : {6, 15, 24}) ASSERT_EQ(p.train("parts", with({iters(part)})).status, 0);
  const Finished again = p.train("parts", with({iters(24)}));
  EXPECT_SAYS(again.err, "best held-out loss: ");
  for (const auto& [step, loss] : losses)
    EXPECT_EQ(fs::exists(p.checkpoint("parts", step)), fs::exists(p.checkpoint("whole", step))) << step;
}

// Killed between the evaluation and the save.
TEST(TrainLength, ACheckpointThatDoesNotSayHowGoodItIsIsEvaluatedWhereTheBestAreKept) {
  const RunPlace p;
  spill(p.at("held.txt"), slurp(p.at("text.txt")).substr(0, 300));
  const std::vector<std::string> settings{iters(4), "data.valid=" + p.at("held.txt"), "train.eval_interval=2",
                                          "checkpoint.keep_best=1"};
  ASSERT_EQ(p.train("run", settings).status, 0);
  const fs::path last = p.checkpoint("run", 4), state = last / "weft/state.json";
  const std::string said = slurp(state);
  nlohmann::json json = nlohmann::json::parse(said);
  ASSERT_EQ(json.erase("held_out"), 1u);
  spill(state, json.dump());
  Manifest manifest = parse_manifest(slurp(last / kManifestFile), "m");
  const auto bytes = int64_t(json.dump().size());
  manifest.files["weft/state.json"] = {
      .bytes = bytes, .head_bytes = bytes, .head = to_hex(hash128(json.dump())), .tensors = {}};
  spill(last / kManifestFile, to_text(manifest));
  const Finished f = p.train("run", settings);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(slurp(state), said);
}

TEST(TrainLength, ARunByEpochsThatIsFinishedIsNotWarnedOfRoom) {
  const RunPlace p;
  ASSERT_EQ(p.train("run", {"train.epochs=0.25"}).status, 0);
  const auto again = [&](const std::string& epochs) {
    testing::Command command{{"train", p.at("r.toml"), "run.dir=" + p.at("run"), epochs}};
    command.largest_file = 6000;  // a recipe fits, weights do not
    return testing::run(command).err;
  };
  EXPECT_EQ(again("train.epochs=0.25").find("until then no save will succeed"), std::string::npos);
  EXPECT_SAYS(again("train.epochs=0.5"), "raise ulimit -f; until then no save will succeed");
}

TEST(TrainLength, TheBestNeedHeldOutLosses) {
  const RunPlace p;
  const Finished f = p.train("run", {"checkpoint.keep_best=1"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err,
              "checkpoint.keep_best = 1: expected 0, or held-out losses to choose by: set data.valid or "
              "data.valid_fraction, and train.eval_interval");
}

}  // namespace
}  // namespace weft
