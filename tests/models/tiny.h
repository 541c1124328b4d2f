// Small models of every kind, and one training step of them in fp64, for tests.
#pragma once
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/models/init.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/plan/memory_plan.h"
#include "weft/step/executor.h"

namespace weft::testing {

inline ModelSpec tiny_llama() {
  return {.family = Family::llama,
          .vocab_size = 37,
          .width = 16,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 6,
          .ffn_width = 20,
          .max_positions = 32,
          .rope = RopeSpec{},
          .init_std = 0.2};
}
inline ModelSpec tiny_gpt2() {
  ModelSpec m = tiny_llama();
  m.family = Family::gpt2;
  m.num_kv_heads = 4;
  m.head_dim = 4;
  m.norm = NormKind::layer_norm;
  m.mlp = MlpKind::gelu_tanh;
  m.learned_positions = m.qkv_bias = m.attention_out_bias = m.mlp_bias = m.tied_head = true;
  m.rope.reset();
  return m;
}
inline ModelSpec tiny_qwen3() {
  ModelSpec m = tiny_llama();
  m.family = Family::qwen3;
  m.qk_norm = QkNorm::heads;
  m.qkv_bias = true;  // biases as in qwen2: all options at once
  m.tied_head = true;
  m.layers = {{.rope = m.rope}, {.rope = m.rope, .window = 3}};
  return m;
}
// Blocks that differ in all that they may.
inline ModelSpec tiny_mixed() {
  ModelSpec m = tiny_llama();
  m.num_layers = 4;
  m.layers = {{.mlp = MlpKind::gelu_tanh, .rope = RopeSpec{.theta = 100}, .window = 2},
              {.norm = NormKind::layer_norm, .rope = m.rope},
              {.rope = RopeSpec{.theta = 100}},
              {.window = 3}};
  return m;
}
// Heads from latents; every width is another.
inline ModelSpec tiny_latent() {
  ModelSpec m = tiny_llama();
  m.family = Family::deepseek_v3;
  m.num_heads = m.num_kv_heads = 3;
  m.latent = LatentSpec{.q_rank = 9, .kv_rank = 7, .nope_dim = 5, .rope_dim = 4, .v_dim = 3, .score_factor = 1.3};
  m.head_dim = 9;
  return m;
}
inline ModelSpec tiny_latent_lite() {
  ModelSpec m = tiny_latent();
  m.family = Family::deepseek_v2;
  m.latent->q_rank = 0;
  m.latent->interleaved = false;
  return m;
}
// Norms before and behind the halves, caps, a scaled embedding, two kinds of rotation.
inline ModelSpec tiny_gemma() {
  ModelSpec m = tiny_llama();
  m.family = Family::gemma2;
  m.qk_norm = QkNorm::heads;
  m.norm_offset = 1;
  m.embedding_scale = 4;
  m.attention_scale = 0.6;
  m.attention_softcap = 1.5;
  m.logit_softcap = 2;
  m.tied_head = true;
  const LayerSpec layer{.mlp = MlpKind::geglu_tanh, .rope = m.rope, .norm_behind = true};
  m.layers = {layer, layer};
  m.layers[0].window = 3;
  m.layers[1].rope = RopeSpec{.theta = 100, .scaling = RopeSpec::Scaling::linear, .factor = 8};
  return m;
}
// Norms behind the halves alone, and of all heads of q and of k at once; heads that turn in part; sinks.
inline ModelSpec tiny_olmo2() {
  ModelSpec m = tiny_llama();
  m.family = Family::olmo2;
  m.qk_norm = QkNorm::all;
  m.attention_sinks = true;
  const LayerSpec layer{.rope = RopeSpec{.width = 4, .magnitude = 1.1}, .norm_before = false, .norm_behind = true};
  m.layers = {layer, layer};
  m.layers[1].rope->interleaved = true;
  return m;
}
// Blocks with experts, beside a shared one that has a gate, and without. Losses of routers are not in what a run says.
inline ModelSpec tiny_experts() {
  ModelSpec m = tiny_llama();
  m.family = Family::qwen2_moe;
  m.vocab_size = 201;  // a head that needs more than a block does
  m.num_layers = 3;
  m.experts = {.count = 5,
               .chosen = 2,
               .width = 6,
               .shared_width = 8,
               .shared_gate = true,
               .routing = {.normalise = true, .scale = 1.5}};
  m.layers = {{.rope = m.rope, .experts = true}, {.rope = m.rope}, {.rope = m.rope, .experts = true}};
  return m;
}
// Modules that predict a token more: of latents, with experts, beside a head of its own; where one table is all.
inline ModelSpec tiny_mtp() {
  ModelSpec m = tiny_latent();
  m.experts = {.count = 5, .chosen = 2, .width = 6, .shared_width = 8, .routing = {.normalise = true}};
  m.layers = {{.rope = m.rope}, {.rope = m.rope, .experts = true}};
  m.mtp_block = m.layers[1];
  m.mtp_loss_coef = 0.7;
  return m;
}
inline ModelSpec tiny_mtp_tied() {
  ModelSpec m = tiny_llama();
  m.tied_head = true;
  m.embedding_scale = 4;
  m.logit_softcap = 2;
  m.mtp_block = {.rope = m.rope, .window = 3};
  m.mtp_loss_coef = 0.7;
  return m;
}
inline std::vector<std::pair<std::string, ModelSpec>> tiny_models_that_look_further() {
  return {{"mtp", tiny_mtp()}, {"mtp tied", tiny_mtp_tied()}};
}
inline std::vector<std::pair<std::string, ModelSpec>> tiny_models() {
  return {{"llama", tiny_llama()},    {"gpt2", tiny_gpt2()},
          {"qwen3", tiny_qwen3()},    {"mixed", tiny_mixed()},
          {"gemma", tiny_gemma()},    {"olmo2", tiny_olmo2()},
          {"latent", tiny_latent()},  {"latent lite", tiny_latent_lite()},
          {"experts", tiny_experts()}};
}

struct StepOptions {
  bool keep_activations = true, recompute_blocks = false, tree = false;
  int64_t micro_batch_size = 1, num_micro_batches = 4;
  std::string schedule = "1f1b";
  double dropout = 0;
  Spmd stream = Spmd::Invariant;
  int64_t logits_bytes = LayerPlan().logits_bytes;
  bool scores_first = false, predicts_values = false, predicts_further = false;
  int num_sums = 0;
  std::vector<ModelSpec> frozen = {};
  std::optional<ModelSpec> teacher = {};
  Distillation distillation = {};
  // In place of a teacher, so many of its logits at each token, which this fills from the token on.
  int64_t top = 0;
  std::function<void(const TopLogits& to, int64_t first_token)> load_top = {};
};

inline constexpr int64_t kSeq = 7;

inline StepSpec step_spec(const StepOptions& o, Precision precision = kF64) {
  StepSpec step{
      .precision = precision,
      .model = {.layers = {.stream = o.stream, .keep_activations = o.keep_activations, .logits_bytes = o.logits_bytes},
                .recompute_blocks = o.recompute_blocks,
                .max_positions = kSeq},
      .seq_length = kSeq,
      .micro_batch_size = o.micro_batch_size,
      .order = {.num_micro_batches = o.num_micro_batches, .tree = o.tree},
      .schedule = schedule_of(pipeline_named(o.schedule, 1), 0, o.num_micro_batches),
      .evaluates = true,
      .scores_first = o.scores_first,
      .num_sums = o.num_sums,
      .predicts_values = o.predicts_values,
      .predicts_further = o.predicts_further};
  for (const ModelSpec& model : o.frozen)
    step.frozen.push_back({model, {.layers = {.stream = o.stream}, .max_positions = kSeq}});
  if (o.teacher)
    step.teacher = {.frozen = {*o.teacher, {.layers = {.stream = o.stream}, .max_positions = kSeq}},
                    .loss = o.distillation};
  if (o.top > 0) step.stored = {.top = o.top, .loss = o.distillation};
  return step;
}

// One rank, one step, on made-up tokens of which some do not count.
class TinyRun {
 public:
  static constexpr uint64_t kSeed = 11;  // of its weights; the next are those of the frozen models
  TinyRun(ModelSpec model, const StepOptions& options, uint64_t seed = kSeed)
      : model_(with_dropout(std::move(model), options.dropout)),
        step_(step_spec(with_further(options, model_.has_mtp()))),
        load_top_(options.load_top),
        optimizer_(make_adamw({.eps = 1e-3})),
        plan_(measure(model_, step_, *optimizer_, no_workspace_)),
        arenas_(plan_.persistent),
        state(model_, step_, *optimizer_, arenas_),
        workspace_("workspace", plan_.workspace),
        backend(1),
        executor_(state, step_, plan_, {backend, mesh_}) {
    init_weights(state.params, seed, 1);
    init_magnitudes(state.params, backend);
    for (FrozenModel& other : state.frozen) init_weights(other.params, ++seed_of_frozen_, 1);
    if (state.teacher) init_weights(state.teacher->params, ++seed_of_frozen_, 1);
  }

  double loss_and_gradients(const Objective& objective = kNextToken) {
    const double divisor = objective.divisor(int64_t(counted()));
    const double loss = executor_.run({.load = load_,
                                       .loss_scale = 1 / divisor,
                                       .dropout_key = 99,
                                       .mtp_scale = 1 / counted_further(),
                                       .objective = objective}) /
                        divisor;
    executor_.check_used();
    return loss;
  }
  void update() {
    update_all(backend, *optimizer_, state.params, executor_.scratch(),
               {.lr = 1e-2, .grad_scale = clip_scale(state.norm->wait_measure(backend), 1), .step = ++steps_});
  }
  // What the gradients of the last pass are derivatives of: `loss` with the losses of multi-token prediction.
  double whole_loss(double loss) const {
    return loss + model_.mtp_loss_coef * executor_.mtp_loss() / counted_further();
  }
  // The mean loss without gradients.
  double evaluate() {
    double sum = 0;
    for (int64_t mb = 0; mb < step_.order.num_micro_batches; ++mb) {
      const Tensor nll = executor_
                             .evaluate([&](MicroBatch& b) {
                               b.index = mb;
                               load_(b);
                             })
                             .nll;
      for (int64_t i = 0; i < nll.elements(); ++i) sum += nll.as<double>()[i];
    }
    return sum / counted();
  }
  Objective::Sums sums() const { return executor_.sums(); }
  // Means of the last pass beside a teacher.
  double divergence() const { return executor_.divergence() / counted(); }
  double cross_entropy() const { return executor_.cross_entropy() / counted(); }
  const MemoryPlan& plan() const { return plan_; }
  PersistentArenas::Sizes used() const { return arenas_.peak(); }
  double counted() const {
    double n = 0;
    for (int64_t i = 0; i < step_.order.num_micro_batches * step_.micro_batch_tokens(); ++i) n += counts(i);
    return n;
  }

  double counted_further() const {
    double n = 0;
    for (int64_t i = 0; i < step_.order.num_micro_batches * step_.micro_batch_tokens(); ++i) n += counts_further(i);
    return n;
  }

 private:
  static StepOptions with_further(StepOptions o, bool further) {
    o.predicts_further = further;
    return o;
  }
  static ModelSpec with_dropout(ModelSpec m, double p) {
    m.dropout = {p, p, p};
    return m;
  }
  static bool counts(int64_t token) { return token % 5 != 1; }
  static bool counts_further(int64_t token) { return token % kSeq != kSeq - 1 && counts(token + 1); }
  int32_t id(int64_t token) const { return int32_t((token * 7919 + token * token * 31) % model_.vocab_size); }
  void fill(MicroBatch& b) {
    const int64_t first = b.index * step_.micro_batch_tokens();
    spans_.resize(size_t(step_.order.num_micro_batches));
    auto& spans = spans_[size_t(b.index)];
    spans.clear();
    for (int64_t i = 0; i < step_.micro_batch_tokens(); ++i) {
      b.ids.as<int32_t>()[i] = id(first + i);
      b.targets.as<int32_t>()[i] = id(first + i + 1);
      b.weights.as<double>()[i] = counts(first + i);
      if (b.mtp_targets) {
        b.mtp_targets.as<int32_t>()[i] = id(first + i + 2);
        b.mtp_weights.as<double>()[i] = counts_further(first + i);
      }
      b.positions.as<int32_t>()[i] = int32_t(i % kSeq);
      b.tokens.as<int64_t>()[i] = first + i;
      if (i % kSeq == 0)
        spans.push_back({.q_row = i, .q_count = kSeq, .k_row = i, .k_count = kSeq, .sample = (first + i) / kSeq});
    }
    b.spans = spans;
    if (b.top.ids) load_top_(b.top, first);
  }

  const ModelSpec model_;
  const StepSpec step_;
  const std::function<void(const TopLogits& to, int64_t first_token)> load_top_;
  const WorkspaceModel no_workspace_;
  std::unique_ptr<Optimizer> optimizer_;
  const MemoryPlan plan_;
  PersistentArenas arenas_;
  std::vector<std::vector<AttentionSpan>> spans_;
  int64_t steps_ = 0;
  uint64_t seed_of_frozen_ = kSeed;

 public:
  TrainingState state;

 private:
  Arena workspace_;
  const ProcessMesh mesh_ = single_mesh();

 public:
  RefBackend backend;

 private:
  const LoadMicroBatch load_ = [this](MicroBatch& b) { fill(b); };
  Executor executor_;
};

inline std::vector<double> gradients(const TinyRun& run) {
  std::vector<double> all;
  for (const Param* p : run.state.params.params()) {
    const double* g = run.state.params.stored(*p)[0].grad.as<double>();
    all.insert(all.end(), g, g + p->shape().elements());
  }
  return all;
}

// How fast the loss that the objective reports grows along the gradient, of all weights together, divided by how fast
// it would if the gradient is its derivative: 1 then. By central differences; NaN where the gradient is 0.
inline double growth_along_gradient(TinyRun& run, const Objective& objective) {
  const auto loss = [&] {
    const double weighted = run.loss_and_gradients(objective);
    return objective.loss(weighted, run.sums());
  };
  loss();
  const std::vector<double> gradient = gradients(run);
  double squares = 0;
  for (const double g : gradient) squares += g * g;
  const auto moved = [&](double step) {
    size_t at = 0;
    for (Param* p : run.state.params.params()) {
      double* const w = run.state.params.stored(*p)[0].master.as<double>();
      for (int64_t i = 0; i < p->shape().elements(); ++i) w[i] += step * gradient[at++];
    }
    run.state.params.masters_changed(run.backend);
  };
  const double h = 1e-5 / std::sqrt(squares);
  moved(h);
  const double more = loss();
  moved(-2 * h);
  const double less = loss();
  return (more - less) / (2 * h) / squares;
}

}  // namespace weft::testing
