// What a run reports of itself, and metrics.jsonl, the file it keeps it in: one JSON object a line
// (docs/formats/metrics.md).
//   step  number of optimizer steps done: the record of the first step says 1
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/descriptor.h"

namespace weft {

struct StepRecord {
  int64_t step = 0;
  double loss = 0;          // nats per counted target token; NaN where none counted
  double aux_loss = 0;      // balance of the experts' load, without its factor, and no part of loss; 0 for dense models
  double z_loss = 0;        // size of router logits, likewise
  double mtp_loss = 0;      // nats per counted token after a target; 0 without multi-token prediction
  double grad_norm = 0;     // before clipping
  double lr = 0;            // of this step
  double tokens_per_s = 0;  // of all ranks together
  double step_time_s = 0;
  double mfu = 0;            // fraction of the measured matmul rate: 0.45 is 45 %
  int64_t memory_bytes = 0;  // peak of the busiest rank
  // Where time went on the rank that leads; 0 or none where it is not known.
  double data_s = 0;                                         // of the step: reading its samples
  std::vector<std::pair<std::string, double>> waits_s = {};  // of the step, by axis: for what other ranks send
  double eval_s = 0, save_s = 0;  // between the step before and this one: evaluations and tasks, checkpoints
  double loss_scale = 0;          // of this step; 0 where there is none: it and skipped_steps are then not written
  int64_t skipped_steps = 0;      // of the run so far, for gradients that overflowed
  // By layers with experts, if there are any: tokens that each expert had; mean entropy of router scores, nats.
  std::vector<std::vector<int64_t>> expert_load = {};
  std::vector<double> router_entropy = {};
  std::vector<int64_t> dropped = {};  // likewise: pairs of a token and an expert; none where they cannot be dropped
  // The same by modules of multi-token prediction with experts, if there are any.
  std::vector<std::vector<int64_t>> mtp_expert_load = {};
  std::vector<double> mtp_router_entropy = {};
  std::vector<int64_t> mtp_dropped = {};
  // Of a run with phases: which one the step is of (0: before the first), and the size of its batch and samples.
  struct Phase {
    int64_t number = 0, global_batch_size = 0, seq_length = 0;
    bool operator==(const Phase&) const = default;
  };
  std::optional<Phase> phase = {};
  // Of a run that watches for loss spikes: those so far, this step among them; none of another one.
  std::optional<int64_t> spikes = {};
  // The batch of the data that the step read, from 0, where that is not step - 1: the run has gone past others.
  std::optional<int64_t> batch = {};
  // What the objective says beside the loss, by name: none of cross-entropy.
  std::vector<std::pair<std::string, double>> terms = {};

  bool operator==(const StepRecord&) const = default;
};

struct EvalRecord {
  int64_t step = 0;
  double loss = 0;  // nats per counted target token of the held-out text; NaN where none counted
  double perplexity = 0;
  int64_t tokens = 0;  // counted targets
  // What an objective of pairs says beside its loss, by its own names; then there is no perplexity.
  std::vector<std::pair<std::string, double>> terms = {};

  bool operator==(const EvalRecord&) const = default;
};

// What a run scored in its tasks: "piqa.acc" and so on, each with its standard error as "piqa.acc_stderr".
struct TasksRecord {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> results = {};

  bool operator==(const TasksRecord&) const = default;
};

// One line of metrics.jsonl, without its newline. Every finite number reads back as exactly the same bits; NaN and the
// infinities, which JSON cannot say, become null.
std::string to_json(const StepRecord& record);
std::string to_json(const EvalRecord& record);
std::string to_json(const TasksRecord& record);

// The log of one run, written by one process. Append-only: a record is in the hands of the operating system when append
// returns, so a killed process loses none; only sync_to_disk protects from a power cut.
// Every function throws FileError; after a failed append (a full disk) the file ends with the record before it.
class MetricsLog {
 public:
  // Opens or creates `file` and drops what a resumed run will write again: every record after the first one with a step
  // beyond `last_step`, and a last line torn by a crash. -1 keeps no record. The cut is one truncation: it happens or
  // not. Damaged lines before it are passed over, counted, and left as they are.
  MetricsLog(const std::filesystem::path& file, int64_t last_step);

  void append(const StepRecord& record) { append_line(to_json(record)); }
  void append(const EvalRecord& record) { append_line(to_json(record)); }
  void append(const TasksRecord& record) { append_line(to_json(record)); }
  void sync_to_disk();
  // Damaged lines found at opening, which are kept.
  int64_t damaged_lines() const { return damaged_; }
  int64_t first_damaged_line() const { return first_damaged_; }  // from 1

 private:
  void append_line(std::string line);

  std::filesystem::path file_;
  Descriptor fd_;
  int64_t size_ = 0;  // bytes of whole lines
  int64_t damaged_ = 0, first_damaged_ = 0;
};

struct Metrics {
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
  std::vector<TasksRecord> tasks;
  int64_t damaged_lines = 0;  // passed over
};

// All whole records of a metrics.jsonl; null reads as NaN, an absent number as 0. A torn last line is left out; lines
// that are no records are passed over and counted. Throws FileError where the file cannot be read.
Metrics read_metrics(const std::filesystem::path& file);

}  // namespace weft
