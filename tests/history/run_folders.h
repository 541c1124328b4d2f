// Run folders made by hand, as far as their records go: nothing is trained.
#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "support.h"
#include "weft/checkpoint/manifest.h"
#include "weft/history/run_facts.h"
#include "weft/records/metrics_log.h"

namespace weft::testing {

struct MadeRun {
  std::string settings = "";  // lines behind [train]: "seed = 7\n"
  std::string model = "base-model";
  int64_t train_iters = 4, steps = 4;
  double loss = 2.5;  // of the last step; each step before has 0.5 more
  std::vector<std::pair<int64_t, double>> held_out = {};
  std::string contents = "c0ffee";  // of the training file
  std::string more = "";            // lines before [train]: "[optimizer]\nlr = 0.1\n"
};

inline void make_saved(const std::filesystem::path& run, int64_t step, std::optional<double> held_out = {}) {
  const std::filesystem::path folder = run / ("checkpoints/step-" + std::to_string(step));
  std::filesystem::create_directories(folder / "weft");
  spill(folder / "config.json", "{}");
  nlohmann::json state{{"format", 2}, {"step", step},    {"samples", 2 * step}, {"data", "d"},
                       {"seed", 1},   {"tokenizer", ""}, {"context", 8},        {"sources", nlohmann::json::array()}};
  if (held_out) state["held_out"] = {{"loss", *held_out}, {"tokens", 64}};
  spill(folder / "weft/state.json", state.dump());
  Manifest manifest{.step = step, .files = {}};
  manifest.add_others(folder);
  spill(folder / kManifestFile, to_text(manifest));
}

inline std::filesystem::path make_run(const std::filesystem::path& run, const MadeRun& made = {}) {
  std::filesystem::create_directories(run);
  spill(run / "recipe.toml",
        fmt::format("# weft wrote this: the whole recipe of the run in this folder.\n[model]\npath = \"{}\"\n[data]\n"
                    "train = [\"tokens.bin\"]\n[run]\ndir = \"{}\"\n{}[train]\nseq_length = 8\nglobal_batch_size = 2\n"
                    "micro_batch_size = 1\ntrain_iters = {}\n{}",
                    made.model, run.filename().string(), made.more, made.train_iters, made.settings));
  std::string metrics;
  for (int64_t s = 1; s <= made.steps; ++s) {
    metrics += to_json(StepRecord{.step = s,
                                  .loss = made.loss + 0.5 * double(made.steps - s),
                                  .grad_norm = 1,
                                  .lr = 1e-3,
                                  .tokens_per_s = s == 1 ? 100.0 : 200.0,
                                  .step_time_s = s == 1 ? 3.0 : 1.0}) +
               "\n";
    for (const auto& [step, loss] : made.held_out)
      if (step == s) metrics += to_json(EvalRecord{.step = s, .loss = loss, .perplexity = 9, .tokens = 64}) + "\n";
  }
  spill(run / "metrics.jsonl", metrics);
  const nlohmann::json source{{"path", "tokens.bin"}, {"contents", made.contents}};
  const nlohmann::json data{
      {"format", 1}, {"order", "order of " + made.contents}, {"train", nlohmann::json::array({source})}};
  spill(run / "data.json", data.dump());
  spill(run / "run.lock", "");
  return run;
}

inline RunFacts facts_of(const std::filesystem::path& run, const MadeRun& made = {}) {
  return read_run_facts(make_run(run, made));
}

}  // namespace weft::testing
