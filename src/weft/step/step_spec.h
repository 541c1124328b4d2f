// One rank's training step as plain values: all that memory and time depend on.
#pragma once
#include <algorithm>
#include <memory>

#include "weft/models/transformer.h"
#include "weft/schedule/schedule.h"

namespace weft {

// A model that a rank holds beside the one that it trains, cut like that, but for what MeshSizes says of frozen models:
// it scores batches and is never updated.
struct FrozenSpec {
  ModelSpec model;
  TransformerPlan plan;  // of the same stream, in as many parts
};

struct StepSpec;

// A frozen model whose distribution at each token the trained one learns.
struct TeacherSpec {
  FrozenSpec frozen;  // of the same vocabulary
  Distillation loss;
  // Of each token, so many of its largest logits alone: then it lies on the ranks as MeshSizes::of_teacher says, its
  // pass over a micro-batch is the forward pass of `apart`, and what it finds goes to the ranks that learn it. 0: all.
  int64_t top = 0;
  std::shared_ptr<const StepSpec> apart = {};
};

// In its place, what was stored of a teacher's logits, and comes with each micro-batch.
struct StoredTeacher {
  int64_t top = 0;  // logits of each token, at least 1
  Distillation loss;
};

struct StepSpec {
  Precision precision;
  TransformerPlan model;
  int64_t seq_length = 0;
  int64_t micro_batch_size = 0;  // sequences
  GradientOrder order;           // micro-batches of a step, and how their gradients are summed
  Pipeline pipeline = {};
  Schedule schedule;              // of this rank's stage
  bool evaluates = false;         // is the loss also measured without training
  bool measures_weights = false;  // are norms of weights and of their changes recorded, at some steps
  bool saves_beside = false;      // are checkpoints written while the run goes on
  int64_t neighbour_slices = 0;   // in how many slices, about, a neighbour's share of one comes here; 0: none does
  int64_t writes = 0;             // texts that this rank goes on with at once, between steps (TextPasses); 0: none
  bool finds_likeliest = false;   // and whether a target is the likeliest token (TokenLosses::parts)
  // Does a step begin with forward-only passes over its batch (Objective): by the model itself, by each of the frozen
  // ones. Needs `evaluates`.
  bool scores_first = false;
  std::vector<FrozenSpec> frozen = {};
  bool scores_base = false;  // is the first frozen model this one without its adapter; `frozen` has the others
  // Or are the losses of the only frozen model read (Executor::StepInput::reference), which is then not here.
  bool stored_reference = false;
  bool scores_others = false;                // are there more passes like these, over other sequences
  std::optional<TeacherSpec> teacher = {};   // scores no tokens: the loss is beside its distributions
  std::optional<StoredTeacher> stored = {};  // else, instead of that
  int num_sums = 0;                          // of these passes, for each sequence of the global batch, over all ranks
  // Or by the model, whose routers count their tokens: for a loss over the whole batch.
  bool counts_experts = false;
  bool predicts_values = false;   // does the model predict values, which the objective weighs
  bool predicts_further = false;  // does the model have a module of multi-token prediction
  size_t num_frozen() const { return frozen.size() + (scores_base || stored_reference ? 1 : 0); }
  bool begins_with_scores() const { return scores_first || counts_experts || num_frozen() > 0 || teacher; }
  // How the loss is beside a teacher; none where there is none.
  std::optional<Distillation> distillation() const {
    return teacher ? std::optional(teacher->loss) : stored ? std::optional(stored->loss) : std::nullopt;
  }
  // Whether the model's head is on this rank.
  bool has_head() const {
    const auto& parts = model.parts;
    return parts.empty() || std::any_of(parts.begin(), parts.end(), [](const ModelPart& part) { return part.head; });
  }
  // Logits of a teacher, stored or found before the step, at each token in this rank's micro-batches.
  int64_t top_here() const { return !has_head() ? 0 : stored ? stored->top : teacher ? teacher->top : 0; }
  MeshSizes mesh = {};
  int rank = 0;  // of the mesh
  // As stores of frozen models have it. With shards of their own, these keep weights as ZeRO stage 3 does.
  GradientOrder frozen_order() const {
    GradientOrder frozen = order;
    if (mesh.frozen_shards == 0) return frozen;
    frozen.shards = mesh.frozen_shards;
    frozen.zero_stage = frozen.shards > 1 ? 3 : 0;
    return frozen;
  }
  SequenceCut sequences() const { return {seq_length, {mesh.cp, place_of(mesh, rank).cp}}; }
  int64_t micro_batch_tokens() const { return sequences().rows() * micro_batch_size; }  // here
  int64_t global_tokens() const { return seq_length * micro_batch_size * order.global_micro_batches(); }
  // The tokens of a micro-batch that this rank's stream holds.
  Run stream() const {
    const bool cut = model.layers.stream == Spmd::Shard0;
    return share_of(micro_batch_tokens(), cut ? RankOf{mesh.tp, place_of(mesh, rank).tp} : RankOf{});
  }
};
// What a micro-batch may have: tensors of multi-token prediction, weights of values, so many logits of a teacher at
// each token.
struct MicroBatchParts {
  bool further = false, values = false;
  int64_t top = 0;
};
// The tensors of one micro-batch (MicroBatch without spans).
MicroBatch alloc_micro_batch(Arena& arena, const StepSpec& step);
// The same for `tokens` of one sequence that are all of one rank's stream; their weights are of dtype `stat`.
MicroBatch alloc_micro_batch(Arena& arena, int64_t tokens, DType stat, const MicroBatchParts& parts = {});

}  // namespace weft
