// What a metrics.jsonl of any length comes to, read once from front to end in little memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace weft {

// One number that a run has reached, and after which step.
struct RunResult {
  double value = 0;  // finite
  int64_t step = 0;
  bool operator==(const RunResult&) const = default;
};

struct MetricsSummary {
  int64_t last_step = 0;    // 0: no step is recorded
  int64_t num_records = 0;  // of steps
  double busy_s = 0;        // that steps, evaluations and saves took together
  // By name: "loss" and what else the last step says of its objective; "held_out.loss", the least of all evaluations,
  // and "held_out.NAME" of the last one; "piqa.acc" of the last tasks; "tokens_per_s" and "mfu", means over time.
  std::map<std::string, RunResult> results = {};
  int64_t damaged_lines = 0;  // passed over
};

// Throws FileError where the file cannot be read, is no regular file, or is not there. Lines that are no records are
// passed over and counted; a torn last line is left out. Numbers that are not finite give no result.
MetricsSummary summarize_metrics(const std::filesystem::path& file);

// Whether less is better: losses, perplexities, divergences, times, bytes, norms. Standard errors and learning rates
// are neither better nor worse (is_judged).
bool less_is_better(const std::string& result);
bool is_judged(const std::string& result);

}  // namespace weft
