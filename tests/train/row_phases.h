// A fixture for phases of objectives over rows and text: recipes over small golden data, runs, and what they leave.
#pragma once
#include <fstream>

#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/train/checkpoint_state.h"

namespace weft::testing {

using Settings = std::vector<std::string>;
using PhaseTables = std::vector<Recipe::Phase>;

inline const std::filesystem::path kGoldenRuns = std::filesystem::path(kSourceDir) / "tests/golden";

inline std::string in_toml(const std::filesystem::path& path) { return "\"" + path.string() + "\""; }

class RowPhases : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string tokens;
    for (int i = 0; i < 1500; ++i) tokens += {char((i * i + 3 * i / 7) % 97), 0};
    std::ofstream(dir_ / "text.bin", std::ios::binary) << tokens;
  }

  // SGD without momentum: a run that begins with the weights of another's checkpoint goes on with it.
  Recipe recipe(const std::string& run, const Settings& more, const PhaseTables& phases = {},
                const char* golden = "dpo") const {
    Settings all{"optimizer.name=sgd",
                 "optimizer.momentum=0",
                 "optimizer.adam_beta1=0.9",
                 "optimizer.adam_beta2=0.95",
                 "optimizer.adam_eps=1e-8",
                 "optimizer.lr=0.3",
                 "optimizer.min_lr=0.01",
                 "optimizer.lr_decay_style=constant",
                 "optimizer.lr_warmup_iters=0",
                 "train.train_iters=4",
                 "train.micro_batch_size=2",
                 "train.log_grad_norms=false",
                 "checkpoint.keep_latest=0",
                 "run.threads=1",
                 "run.backend=cpu"};
    all.insert(all.end(), more.begin(), more.end());
    Recipe r = golden_recipe(kGoldenRuns / golden, dir_ / run, all);
    r.phases = phases;
    r = parse_recipe(to_toml(r), "with phases", {});
    check_supported(r);
    return r;
  }
  Settings text(const Settings& more = {}) const {
    Settings all{"train.objective=cross_entropy", "data.pairs=",        "data.train=" + (dir_ / "text.bin").string(),
                 "train.seq_length=16",           "objective.beta=0.1", "objective.label_smoothing=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::pair<std::string, std::string>> pairs_phase() const {
    return {{"data.pairs", in_toml(kGoldenRuns / "dpo/pairs.jsonl")},
            {"train.objective", "\"dpo\""},
            {"train.seq_length", "32"},
            {"objective.beta", "0.2"}};
  }

  Metrics train(const Recipe& r) const {
    testing::train(r, machine_for(r));
    return read_metrics(std::filesystem::path(r.run.dir) / "metrics.jsonl");
  }
  std::string weights(const std::string& run, int64_t step) const {
    return slurp(dir_ / run / fmt::format("checkpoints/step-{}/model.safetensors", step));
  }
  std::filesystem::path checkpoint(const std::string& run, int64_t step) const {
    return dir_ / run / fmt::format("checkpoints/step-{}", step);
  }

  // The steps of `whole` from `first` on are those of `tail`.
  void expect_tail(const Metrics& whole, size_t first, const Metrics& tail) const {
    ASSERT_EQ(whole.steps.size(), first + tail.steps.size());
    for (size_t i = 0; i < tail.steps.size(); ++i) {
      EXPECT_EQ(whole.steps[first + i].loss, tail.steps[i].loss) << i;
      EXPECT_EQ(whole.steps[first + i].grad_norm, tail.steps[i].grad_norm) << i;
      EXPECT_EQ(whole.steps[first + i].terms, tail.steps[i].terms) << i;
    }
  }

  void expect_goes_on(const Recipe& whole, const std::vector<int64_t>& stops) const {
    const Metrics all = train(whole);
    for (const int64_t stop : stops) {
      SCOPED_TRACE(stop);
      Recipe r = whole;
      r.run.dir = (dir_ / fmt::format("from-{}", stop)).string();
      std::filesystem::copy(whole.run.dir, r.run.dir, std::filesystem::copy_options::recursive);
      for (int64_t step = stop + 1; step <= r.train.train_iters; ++step)
        std::filesystem::remove_all(std::filesystem::path(r.run.dir) / fmt::format("checkpoints/step-{}", step));
      const Metrics resumed = train(r);
      expect_tail(all, 0, resumed);
      const bool adapted = r.adapter.kind != AdapterKind::none;
      for (const char* file : {adapted ? "adapter_model.safetensors" : "model.safetensors",
                               "weft/optimizer.safetensors", "weft/state.json"}) {
        const std::string last = fmt::format("checkpoints/step-{}", r.train.train_iters);
        EXPECT_TRUE(slurp(std::filesystem::path(whole.run.dir) / last / file) ==
                    slurp(std::filesystem::path(r.run.dir) / last / file))
            << file;
      }
    }
  }

  TempDir dir_;
};

}  // namespace weft::testing
