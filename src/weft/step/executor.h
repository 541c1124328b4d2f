// Runs one step's schedule: the instructions of each action, on real memory or on arenas that only count. Knows nothing
// of the layers' inside or of the data.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <vector>

#include "weft/schedule/loops.h"
#include "weft/step/batch_staging.h"
#include "weft/step/instructions.h"
#include "weft/step/objective.h"
#include "weft/step/stage_links.h"
#include "weft/step/step_memory.h"
#include "weft/step/teacher_apart.h"
#include "weft/step/training_state.h"

namespace weft {

// Writes the losses that are stored of a frozen model at the tokens of a micro-batch here: 0 where a target does not
// count.
using ReadReference = std::function<void(int64_t micro_batch, std::span<double> losses)>;

class Executor {
 public:
  struct Resources {
    Backend& backend;
    const ProcessMesh& mesh;
    std::shared_ptr<Memory> memory = host_memory();
    int threads = 1;  // for what the host finds in a teacher's logits
  };
  // Allocates what the plan says. `state` and `step` must outlive this.
  Executor(TrainingState& state, const StepSpec& step, const StepMemory& plan, Resources resources);
  // A dry one: it allocates nothing, and finds out what a plan should say. Its backend computes nothing and its mesh
  // sends nothing, but adds to `traffic`.
  Executor(TrainingState& state, const StepSpec& step, Resources resources, Traffic& traffic);

  struct StepInput {
    const LoadMicroBatch& load;  // whose weights say which targets count
    double loss_scale;           // of gradients: fp16's scale / the objective's divisor
    uint64_t dropout_key;        // of this step
    double scale = 1;            // fp16's alone: of the gradients of routers' own losses
    double mtp_scale = 0;        // likewise / the number of tokens after targets that count
    const Objective& objective = kNextToken;
    int64_t batch = 0;                       // which one of the run it is, for the objective
    const LoadMicroBatch* others = nullptr;  // where the objective scores other sequences too: these
    // Where the reference's losses are stored: those of this batch, and of its other sequences.
    ReadReference reference = {}, reference_of_others = {};
    // Where a teacher has axes of its own: loads micro-batch b.index of the global batch, as b.sequences cuts it.
    const LoadMicroBatch* global = nullptr;
    // Hear of every instruction, with its action (none: at the end of the step), before it begins, and when it has
    // ended.
    std::function<void(const Action*, const Instruction&)> begins = {};
    std::function<void()> ends = {};
  };
  // Forward and backward of all micro-batches; gradients and losses are summed. Returns the sum of the targets'
  // weighted losses. Blocks.
  double run(const StepInput& input);
  // The same on another backend over the same memory (a decorator of it).
  double run_on(Backend& backend, const StepInput& input);
  // What the objective has summed of each sequence in the last run (Objective::Sums).
  Objective::Sums sums() const { return sums_; }
  // Likewise the sum of the losses of multi-token prediction; 0 without it.
  double mtp_loss() const { return mtp_loss_; }
  // Likewise the sums of the two losses beside a teacher, of which `run` returns what its Distillation makes.
  double divergence() const { return divergence_; }
  double cross_entropy() const { return cross_entropy_; }
  // The forward-only passes with which a step begins, over any batch, and what the objective sums of it. Blocks.
  Objective::Sums measure(const StepInput& input);
  // Forward only, of one micro-batch that `load` fills: the losses of its tokens, until the next call.
  TokenLosses evaluate(const LoadMicroBatch& load);

  // What its arenas have held at most, so far.
  StepMemory used() const;
  // That this is the plan: a WEFT_CHECK that names what differs. After at least one step.
  void check_used() const;
  int64_t peak_bytes() const;
  Arena& scratch() { return scratch_; }

 private:
  // What a micro-batch keeps on its way through a chunk.
  struct Kept {
    MicroBatch batch;
    std::vector<std::unique_ptr<AnyLayer::Saved>> layers;
    std::vector<Tensor> stream;    // [layer] into it, and out of the last
    std::vector<Tensor> gradient;  // of those
    int64_t mark = 0;              // of dgrad_till_wgrad, where dgrad and wgrad of a block follow each other
  };
  struct InFlight {
    Arena *till_dgrad = nullptr, *till_wgrad = nullptr, *dgrad_till_wgrad = nullptr;  // null when given back
    std::shared_ptr<Kept> kept;  // all micro-batches keep the same in a dry run
  };
  struct ChunkState {
    Slots till_dgrad, till_wgrad, dgrad_till_wgrad;
    std::map<Do, Instructions> instructions;
    std::map<int64_t, InFlight> in_flight = {};
    std::vector<std::shared_ptr<Kept>> spare = {};
  };
  // [chunk] micro-batches in flight, ascending, and which arenas each has.
  struct InFlightKey {
    int64_t micro_batch;
    bool till_dgrad, dgrad_till_wgrad;
    auto operator<=>(const InFlightKey&) const = default;
  };
  using InFlightNow = std::vector<std::vector<InFlightKey>>;

  Executor(TrainingState& state, const StepSpec& step, const StepMemory* plan, Resources resources);
  bool is_dry() const { return traffic_ != nullptr; }
  void make_chunks(const StepMemory* plan, const std::shared_ptr<Memory>& memory);
  std::shared_ptr<Kept> make_kept(int chunk) const;

  void make_room_for_states();
  void teach_batch(const StepInput& input);
  void ask_teacher(const StepInput& input);
  void load_tokens(MicroBatch& b, const StepInput& input) const;
  Teaching teaching_of(int64_t micro_batch) const;
  void learn(const ModelLayer& head, Pass& p, Kept& k, size_t at);
  void score_batch(const StepInput& input);
  void count_experts(const StepInput& input);
  // [micro-batch][token], of the forward-only passes of a step.
  using Losses = std::vector<std::vector<double>>;
  struct Scored {
    Losses own;                  // by the model itself
    Losses values;               // its own, where it predicts them
    std::vector<Losses> frozen;  // by each frozen one
    Losses counted;              // 1 where a target counts, else 0; none where nothing is summed
  };
  Scored score_with(const LoadMicroBatch& load, const ReadReference& reference);
  Losses stored_losses(const ReadReference& reference) const;
  void add_sums(const Scored& scored, bool others, const StepInput& input);
  void wait_sum_sequences();
  int64_t num_sums_of_batch() const;
  Objective::Scores scores_of(const Scored& scored, int64_t micro_batch, const StepInput& input) const;
  // A model that scores, by which ranks, and whether with its adapters.
  struct Scorer {
    const Model& model;
    ParamStore& params;
    const ProcessMesh& mesh;
    bool adapters = true;
  };
  TokenLosses score(const Scorer& scorer, const LoadMicroBatch& load);
  void load(MicroBatch& b, const StepInput& input);
  void act(const Action& action, const StepInput& input);
  void execute(const Instruction& i, const Action& action, Pass& p, InFlight& m, const StepInput& input);
  InFlight& begin(const Action& action, const StepInput& input);
  InFlight& find(const Action& action);
  void begin_forward(Pass& p, int chunk, Kept& k) const;
  void begin_backward(Pass& p, const Action& action, Kept& k) const;
  void end(const Action& action, InFlight& m);
  Pass pass(const InFlight& m, uint64_t dropout_key);
  // Streams of a chunk: those into its layers, and out of the last. The first comes out of the embedding, the last goes
  // into the head, where the chunk has them.
  size_t first_stream(int chunk) const { return model_.has_embedding(chunk) ? 1 : 0; }
  size_t last_stream(int chunk) const { return model_.layers(chunk).size() - (model_.has_head(chunk) ? 1 : 0); }

  void count(const Loop& loop, const StepInput& input);
  InFlightNow in_flight() const;
  bool pass_over(const Loop& like, const InFlightNow& before);
  void move_in_flight(int chunk, int64_t shift);
  static void add_in_flight(ChunkState& chunk, int64_t like, int64_t added);
  static void end_in_flight(ChunkState& chunk, int64_t micro_batch);
  void pass_over_gradients(const Loop& like);

  TrainingState& state_;
  const Model& model_;
  const StepSpec& step_;
  const StepMemory plan_;
  Backend* backend_;
  const ProcessMesh& mesh_;
  const ProcessMesh frozen_mesh_;   // as frozen models see it
  const ProcessMesh teacher_mesh_;  // as a teacher with axes of its own does
  Traffic* traffic_ = nullptr;
  Arena scratch_, replay_, evaluation_, handover_, taught_, teacher_rows_;
  std::vector<Tensor> taught_states_;  // [micro-batch] in it, of the stage with the head
  BatchStaging staging_;
  std::vector<ChunkState> chunks_;
  Scored scored_;             // of the batch
  std::vector<double> sums_;  // [sequence of the global batch][num_sums]
  double mtp_loss_ = 0, divergence_ = 0, cross_entropy_ = 0;
  StageLinks links_;                     // whose messages lie in the chunks' memory
  std::unique_ptr<TeacherApart> apart_;  // a teacher with axes of its own
};

// Forward only, of one micro-batch that `load` fills, with everything in `arena` (rewound first): the losses of its
// tokens, and values where the step's model predicts them, which lie there; zero on stages without the head. Blocks.
struct ForwardOnly {
  const Model& model;
  ParamStore& params;
  const StepSpec& step;
  Backend& backend;
  const ProcessMesh& mesh;
  BatchStaging& staging;
  StageLinks* links = nullptr;  // none: the model is whole here, or only its memory is measured
  uint64_t dropout_key = 0;
  bool counts_experts = false;  // MicroBatch's
  bool adapters = true;         // Pass's
  Tensor states = {};           // of a teacher: receives Model::states, and there are no losses
  TokenLosses score(const LoadMicroBatch& load, Arena& arena) const;

 private:
  void run_chunk(Pass& p, int chunk, std::array<Tensor, 2> streams, const TokenLosses& to) const;
};

}  // namespace weft
