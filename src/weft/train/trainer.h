// A training run, from the first step to the last, or one phase of it. This is the file to read first: run() is the
// loop, step_once() is one step (training_step.h) with its record; everything else they call has its own.
#pragma once
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/sent_bytes.h"
#include "weft/comm/timed.h"
#include "weft/data/row_order.h"
#include "weft/optim/gradient_rule.h"
#include "weft/optim/weight_rule.h"
#include "weft/records/run_records.h"
#include "weft/train/batch_loader.h"
#include "weft/train/checkpoint_save.h"
#include "weft/train/evaluate_rows.h"
#include "weft/train/hang_watch.h"
#include "weft/train/joined_island.h"
#include "weft/train/local_copies.h"
#include "weft/train/matmul_rate.h"
#include "weft/train/rank_run.h"
#include "weft/train/replay_check.h"
#include "weft/train/run_data.h"
#include "weft/train/run_phases.h"
#include "weft/train/run_samples.h"
#include "weft/train/run_tasks.h"
#include "weft/train/run_writer.h"
#include "weft/train/share_balance.h"
#include "weft/train/step_trace.h"
#include "weft/train/straggler_watch.h"
#include "weft/train/training_step.h"

namespace weft {

// The last save of a run failed: its last steps are in no checkpoint.
class NotSavedError : public FileError {
 public:
  using FileError::FileError;
};

// Ranks that should hold the same bytes do not: a fault of a machine has spoilt what the run has learnt.
class CorruptionError : public Error {
 public:
  using Error::Error;
};

// The loss or the gradients of more steps than train.max_spikes have stood out of those before.
class SpikesError : public Error {
 public:
  using Error::Error;
};

// A phase requires a result that the run does not have: it is saved, and stops before it.
class UnmetError : public Error {
 public:
  using Error::Error;
};

struct NonFinite;

// How Trainer::run ended: train_iters steps are done; it was stopped before; the steps of its span are done, and
// another one follows; or it goes on with other shares of micro-batches (train.rebalance).
enum class RunEnd : uint8_t { finished, stopped, span_done, rebalanced };

// What a run takes along from one span of its steps to the next, or to its next shares.
struct CarriedRun {
  std::optional<KeptArenas> arenas;  // none: taken
  int64_t step, saved_step, evaluated_step;
  std::optional<HeldOut> held_out;
  std::optional<TasksRecord> results;
  LossScaleState loss_scale;
  SpikeState spikes;
  WeightRule weight_rule;
  GradientRule gradient_rule;
  bool adapter_changed;
  std::string base, teacher, reference;
  MatmulRate matmul_rate;
  std::unique_ptr<RunRecords> records;
  std::unique_ptr<LocalCopies> local;
  Recipe recipe;                     // of that span; or as it goes on, with the next shares
  ModelSpec model;                   // of that span
  std::vector<double> steps_s = {};  // likewise: what each of its steps took here
  StragglerWatch stragglers;
  int64_t most_bytes;  // that this rank was planned to take when the run began
};

class Trainer {
 public:
  // Reads data and weights, allocates what the plan (of this rank) says, resumes where the run folder has a checkpoint.
  // `stop` may be set at any time (by a signal): the run saves and returns after the step it is in. Each rank of the
  // mesh makes a Trainer of the same recipe; the first one writes what all of them have to say.
  struct Setup {
    const Recipe& recipe;
    const Machine& machine;  // of this rank
    const ProcessMesh& mesh;
    const std::atomic<bool>& stop;
    int terminal_fd = 2;                   // progress goes there
    std::string heartbeat = {};            // the file of whoever watches over the run; empty: nobody does
    RankSigns* signs = nullptr;            // for a HangWatch; none: nobody watches
    const RunData* data = nullptr;         // the data that is open already, which it shares; null: it opens its own
    RunReferences references = {};         // of that data
    const IslandSetup* islands = nullptr;  // null: the run is no island
    // Of a run with phases (train_phases.h); all null: of one without, but for `carried` where its shares have changed.
    struct {
      const RunSpan* span = nullptr;           // the steps that it trains, with their values; `recipe` is that of all
      bool keeps_end = false;                  // is a checkpoint needed of the weights behind them
      bool ends_layout = false;                // the next ones have another layout: the run saves, and stops there
      const FoundCheckpoint* found = nullptr;  // where the run goes on; it has been checked
      CarriedRun* carried = nullptr;           // in place of that, from the span before; taken
    } phases = {};
  };
  Trainer(RunPlan plan, const Setup& setup);

  // Throws NumericsError, CorruptionError, SpikesError, FileError, UnmetError; a NotSavedError where all went well but
  // the last save.
  RunEnd run();
  // After span_done and rebalanced: for the Trainer that follows, which is made when this one is gone.
  CarriedRun take_carried();

 private:
  bool leads() const { return rank_.mesh.world->rank() == 0; }
  void begin(const Setup& setup);
  void take(CarriedRun& carried);
  void open_records(const Setup& setup);
  void write_data_file();
  int64_t end_step() const { return span_ ? span_->end_step : recipe_.train.train_iters; }
  BatchPlace batch_place() const;
  // Of islands, all together have read so many after `step` steps of each.
  int64_t samples_at(int64_t step) const {
    return span_ ? span_->samples_at(step)
                 : spikes_.state.batch_of(step) * num_islands() * recipe_.train.global_batch_size;
  }
  int64_t num_islands() const { return islands_.are_joined() ? islands_.count : 1; }
  // The batch that a step reads: of the batches of one order, islands take every count-th.
  int64_t batch_at(int64_t step) const {
    return spikes_.state.batch_of(step) * num_islands() + (islands_.are_joined() ? islands_.number : 0);
  }
  std::optional<MixPlace> place_at(int64_t step) const;
  Recipe with_longest_samples() const;
  bool any_rank(bool mine, Site site = Site::current()) const;
  bool stopped() const;
  bool wait_asked_to_stop();
  void tell_of_rate();
  void settle_length();
  void require_same_run(const std::filesystem::path& checkpoint, const Progressed& at) const;
  nlohmann::json config_of_checkpoint() const;
  void start_weights(const FoundCheckpoint& found);
  void read_fingerprints();
  void require_frozen(const std::filesystem::path& checkpoint) const;
  std::optional<TasksRecord> wait_judge(const TextScores& scores, const RunTasks::Written& written) const;
  bool is_recorded(const TasksRecord& record) const;  // as the last of its step
  Metrics metrics() const;                            // so far; none where they cannot be read
  template <class Record>
  static bool has_step(const std::vector<Record>& records, int64_t step) {
    return std::any_of(records.begin(), records.end(), [&](const Record& r) { return r.step == step; });
  }
  void enter(RunSection section);
  std::optional<StepRecord> step_once();  // none: the run has gone back
  StepRecord record_of(const TrainingStep::Result& result, int64_t batch, double took);
  double waited_s() const;
  void watch_stragglers(double step_s);
  void wait_rebalance(std::span<const double> compute_s);
  bool has_room_for(const Recipe& recipe) const;
  void note_oddities(const TrainingStep::Result& result);
  TrainingStep::Result run_again(const TrainingStep::Result& first, TrainingStep::Watch watch);
  [[noreturn]] void report_nonfinite(const std::string& what, const NonFinite& found);
  static std::optional<SpikeRule> spike_rule_of(const Recipe& recipe);
  void take_spikes(SpikeState state);
  enum class AfterSpike : uint8_t { goes_on, went_back };
  AfterSpike heed_spike(const TrainingStep::Result& result);
  [[noreturn]] void refuse_more_spikes(const std::string& what, int64_t window);
  std::optional<std::filesystem::path> wait_find_way_back();
  void go_back(const std::filesystem::path& checkpoint);
  void wait_check_replicas();
  void begin_replays();
  bool is_trial() const { return whole_.train.autotune && end_step() < recipe_.train.train_iters; }
  std::filesystem::path replay_file() const;
  TrainingStep::Watch wait_watch_of(int64_t batch);
  void take_request();
  void wait_check_replay(bool asked);
  [[noreturn]] void refuse_corrupted(int64_t step, const std::string& what, nlohmann::json event, size_t num_ranks);
  void let_first_rank_tell() const;
  void join_islands(const IslandSetup& setup, const std::optional<std::filesystem::path>& checkpoint);
  void exchange(StepRecord& record);
  void log_grad_norms(const TrainingStep::Result& step);
  bool measures_weights() const;
  void log_weight_norms(const TrainingStep::Result& step);
  void tell_of_weights(const std::map<std::string, TensorChange>& tensors);
  void tell_of_gradient(const GradientRule::Found& found);
  std::map<std::string, std::vector<double>> wait_sum_tensors(const std::vector<PartSums>& parts, size_t count) const;
  void append_record(const std::string& name, const nlohmann::json& line);
  bool traces() const;
  bool samples_due() const;
  void write_samples();
  bool tells_sent() const;
  void tell_sent(const StepRecord& record);
  void replace_record(const std::string& name, std::string_view content);
  void evaluate();
  std::optional<EvalRecord> evaluate_text();
  bool evaluation_due() const;
  bool tasks_due() const;
  void score_tasks();
  void require_results();
  void refuse_bad_weights();
  void refuse_unchanged_adapter() const;
  std::string wait_first_bad_weight();
  bool is_among_best() const;
  void save(bool last);
  enum class SaveWait : uint8_t { no, yes };
  void begin_save();
  CheckpointSource checkpoint_source() const;
  void begin_local_copies();
  void end_older_copies(int64_t step);
  void copy_locally();
  void go_on_copying(SaveWait wait);
  void begin_local_copies_again();
  void end_local_copies();
  void tell_not_copied(int64_t step, const FileError& e);
  void tell_unheld(int64_t step, const std::string& why);
  void go_on_saving(SaveWait wait);
  void has_saved(const CheckpointSave& save);
  void tell_not_saved(int64_t step, const FileError& e);
  bool due(int64_t interval) const { return interval > 0 && step_ % interval == 0; }

  // Both constant once the data is open: the run's, which has phases, and the values of this span. Without phases they
  // are equal.
  Recipe whole_, recipe_;
  const std::optional<RunSpan> span_;
  const bool keeps_end_, ends_layout_;
  const Islands islands_;  // not joined: the run is no island
  SentBytes sent_;         // by this rank, in the step
  const Machine machine_;
  const std::atomic<bool>& stop_;
  RankSigns* const signs_;
  CommTimes waits_;  // of the step; stays empty where devices wait, not the host
  StragglerWatch stragglers_;
  double compute_s_ = 0, wait_s_ = 0;    // of this rank, since the window of stragglers_ began
  int64_t window_steps_ = 0;             // in it
  std::optional<ShareBalance> balance_;  // where shares may change
  std::vector<int64_t> shares_ = {};     // with which the run goes on; none: as it is
  int64_t most_bytes_;                   // that this rank was planned to take when the run began
  RankRun rank_;
  RunData data_;
  const RunTasks tasks_;
  const RunSamples samples_;
  std::optional<RunWriter> writer_;  // where the run was planned to write
  BatchLoader batches_;
  const RunReferences references_;
  const std::optional<StoredReference> reference_;  // of the training rows
  const std::unique_ptr<const Objective> objective_;
  LossScale loss_scale_;
  SpikeWatch spikes_;
  WeightRule weight_rule_ = {};
  GradientRule gradient_rule_ = {};
  bool has_measured_weights_ = false;  // since it was started, or this span was
  bool has_told_sent_ = false;         // likewise
  const TrainingStep step_run_;
  int64_t context_;  // tokens that the model will have been trained to see at once
  int64_t step_ = 0, saved_step_ = -1, evaluated_step_ = -1;
  double eval_s_ = 0, save_s_ = 0;                  // since the last step
  std::optional<HeldOut> held_out_;                 // of evaluated_step_
  std::optional<TasksRecord> results_;              // of the last step whose tasks were scored
  bool follows_ = false;                            // another span of the run
  bool adapter_changed_ = false;                    // by a step of this run, or of the one that it goes on from
  std::string base_, teacher_, reference_weights_;  // fingerprints of weights that it reads and never writes
  std::unique_ptr<ReplayCheck> replay_;             // none: a step cannot be replayed
  std::string no_replay_;                           // then: why
  bool replay_asked_ = false;                       // of the next step
  std::unique_ptr<CheckpointSave> saving_;          // under way
  std::unique_ptr<JoinedIsland> island_;            // none: the run is no island
  int64_t island_tokens_ = 0;                       // that it has trained on since it was started
  std::unique_ptr<LocalCopies> local_;              // none: not asked for, or not possible
  MatmulRate matmul_rate_;
  std::vector<double> steps_s_;          // of this span
  std::vector<std::string> notes_;       // of the start: where it goes on, what was passed over
  std::unique_ptr<RunRecords> records_;  // of the rank that leads
};

}  // namespace weft
