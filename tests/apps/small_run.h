// Runs of a small model that are made to fail.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "apps/program.h"

namespace weft::testing {

inline bool wait_until(const std::function<bool()>& is, int looks = 2000) {
  for (int i = 0; i < looks && !is(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return is();
}

// Of twelve steps, with a checkpoint after every second one.
class SmallRun : public RecipeTest {
 protected:
  void SetUp() override {
    spill(dir_ / "r.toml", placed_in(std::filesystem::path(kSourceDir) / "tests/golden/llama-gqa", R"(
[model]
path = "DIR"
[data]
train = ["DIR/tokens.bin"]
[train]
seq_length = 8
global_batch_size = 2
micro_batch_size = 1
train_iters = 12
[optimizer]
lr = 1e-3
lr_warmup_iters = 0
[checkpoint]
save_interval = 2
[run]
threads = 1
)"));
  }
  void TearDown() override { ::unsetenv("WEFT_FAULT"); }
  // As the environment has it for the next run (base/fault_point.h).
  static void fail_by(const std::string& faults) { ::setenv("WEFT_FAULT", faults.c_str(), 1); }
  std::string file_of(const std::string& name, int step, const std::string& file) {
    return slurp(dir_ / name / "checkpoints" / ("step-" + std::to_string(step)) / file);
  }
  std::string weights_of(const std::string& name, int step = 12) { return file_of(name, step, "model.safetensors"); }
  size_t records_of(const std::string& name) {
    const std::string lines = slurp(dir_ / name / "metrics.jsonl");
    return size_t(std::count(lines.begin(), lines.end(), '\n'));
  }
  std::vector<nlohmann::json> events_of(const std::string& name, const std::string& event) {
    std::vector<nlohmann::json> found;
    std::istringstream in(slurp(dir_ / name / "events.jsonl"));
    for (std::string line; std::getline(in, line);) {
      found.push_back(nlohmann::json::parse(line));
      if (found.back()["event"] != event) found.pop_back();
    }
    return found;
  }
  std::vector<std::string> causes_of(const std::string& name) {
    std::vector<std::string> causes;
    for (const auto& e : events_of(name, "ended")) causes.push_back(e["cause"]);
    return causes;
  }
};

// Such runs under a supervisor.
class SupervisedRun : public SmallRun {
 protected:
  std::vector<std::string> words(const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> all{"supervise", (dir_ / "r.toml").string(), "run.dir=" + (dir_ / name).string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Finished supervise(const std::string& name, const std::string& faults, const std::vector<std::string>& more = {}) {
    fail_by(faults);
    return testing::weft(words(name, more));
  }
  std::string whole_weights() {
    EXPECT_EQ(run("train", {}, "whole").status, 0);
    return weights_of("whole");
  }
};

}  // namespace weft::testing
