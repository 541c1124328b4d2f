// What the trials of a sweep reached: its state file, its table and its picture (docs/sweep.md).
//   FOLDER/sweep.jsonl  the first line says which sweep it is; then a line for each trial that ended
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/descriptor.h"

namespace weft {

struct TrialResult {
  std::string stage = {};  // "draft" or "full"
  int64_t trial = 0;       // from 1 on
  int64_t rung = 0;        // of a halving, from 0 on
  int64_t steps = 0;       // that it has come to
  // Nats per counted token: the last held-out loss; the mean of the last ten train losses. None of a failed trial.
  std::optional<double> held_out = {}, train = {};
  std::string failed = {};  // why; empty: it has not
  bool operator==(const TrialResult&) const = default;
};

// What the metrics of a run's folder say. Without a finite loss, the trial has failed.
TrialResult result_of_run(const std::filesystem::path& run, TrialResult of);

// The best first: by held-out loss where all that have not failed have it, else by train loss; failed ones last.
void sort_by_metric(std::vector<TrialResult>& results);
bool all_held_out(const std::vector<TrialResult>& results);

// The state file, locked as long as this object lives. Every function throws FileError.
class SweepState {
 public:
  // Makes the folder and the file, or goes on with them; a last line that a crash has torn is dropped. Throws
  // ConfigError where another process has it, the folder holds another sweep, or other things.
  SweepState(const std::filesystem::path& folder, const nlohmann::json& identity);
  const std::vector<TrialResult>& results() const { return results_; }
  // The last word on a trial in this rung of this stage; nullptr: it has not ended.
  const TrialResult* find(const std::string& stage, int64_t trial, int64_t rung) const;
  void add(const TrialResult& result);
  // Failed trials are to run again.
  void forget_failed();

 private:
  void append(const nlohmann::json& line);
  void read(const nlohmann::json& identity);

  std::filesystem::path folder_, file_;
  Descriptor fd_;
  std::vector<TrialResult> results_;
};

struct SweepTable {
  std::vector<std::string> keys = {};                   // swept
  std::vector<bool> log = {};                           // by key: its values were ranged logarithmically
  std::vector<std::vector<std::string>> settings = {};  // by trial, "key=value" in the order of the keys
  std::vector<TrialResult> results = {};
};
// For each stage, the last result of each trial: those of the last rung first, the best of them first.
std::string sweep_table_text(const SweepTable& table);
// A whole SVG document: a plot for each swept key.
std::string sweep_svg(const SweepTable& table, const std::string& title);

}  // namespace weft
