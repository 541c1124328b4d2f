#include "weft/plan/layout.h"

#include <algorithm>
#include <numeric>

#include "weft/base/nearest.h"

namespace weft {
namespace {

// Query heads are cut with their key heads; or, where there are fewer of those, so that each rank's read one of them.
bool heads_fit(const ModelSpec& m, int64_t tp) {
  return tp <= m.num_kv_heads || (tp % m.num_kv_heads == 0 && m.num_heads % tp == 0);
}

// The tokens that each rank has of a micro-batch.
int64_t tokens_of(const Recipe& r) {
  return r.train.seq_length / r.parallel.cp * r.train.micro_batch_size * sequences_of_sample(r);
}

bool tokens_fit(const Recipe& r, int64_t tp) { return !r.parallel.sequence_parallel || tokens_of(r) % tp == 0; }

// Why the model cannot be cut over so many tensor parallel ranks; empty where it can.
std::string cut_fault(const ModelSpec& m, int64_t tp) {
  if (!heads_fit(m, tp))
    return fmt::format(
        "{} query heads and {} key heads cannot be cut over so many ranks (at most the key heads, or a multiple of "
        "them that divides the query heads)",
        m.num_heads, m.num_kv_heads);
  for (const int64_t inner : {m.experts.width, m.experts.shared_width})
    if (m.has_experts() && inner > 0 && tp > inner)
      return fmt::format("experts of an inner width of {} cannot be cut over so many ranks", inner);
  if (tp > m.ffn_width) return fmt::format("an inner width of {} cannot be cut over so many ranks", m.ffn_width);
  if (tp > m.vocab_size) return fmt::format("a vocabulary of {} cannot be cut over so many ranks", m.vocab_size);
  return "";
}

}  // namespace

Precision precision_of(const Recipe& r) {
  WEFT_CHECK(r.train.precision != PrecisionChoice::automatic, "train.precision = \"auto\" is not settled");
  if (r.train.precision == PrecisionChoice::bf16) return kBf16;
  if (r.train.precision == PrecisionChoice::fp16) return kF16;
  return r.train.precision == PrecisionChoice::f64 ? kF64 : kF32;
}

MeshSizes mesh_sizes_of(const Recipe& r) {
  const auto& p = r.parallel;
  const int64_t shards = p.zero_stage == 0 ? 1 : p.zero_shard_size > 0 ? p.zero_shard_size : p.dp * p.cp;
  return {.dp = int(p.dp),
          .pp = int(p.pp),
          .cp = int(p.cp),
          .tp = int(p.tp),
          .ep = int(p.ep),
          .shards = int(shards),
          .frozen_ep = int(p.frozen_ep),
          .frozen_shards = int(p.frozen_shard_size),
          .order = mesh_order(p.order).value(),
          .teacher = teacher_axes_of(r)};
}

std::optional<TeacherAxes> teacher_axes_of(const Recipe& r) {
  const auto& p = r.parallel;
  if (r.train.objective != ObjectiveKind::distill || !r.objective.teacher_logits.empty() || r.objective.top_k == 0)
    return {};
  return TeacherAxes{.pp = int(p.teacher_pp > 0 ? p.teacher_pp : p.pp),
                     .cp = int(p.teacher_cp > 0 ? p.teacher_cp : p.cp),
                     .tp = int(p.teacher_tp > 0 ? p.teacher_tp : p.tp),
                     .ep = int(p.teacher_ep)};
}

Pipeline pipeline_of(const Recipe& r) {
  const auto& p = r.parallel;
  return make_pipeline(p.pipeline_schedule, int(p.pp), int(p.virtual_pipeline_parallel_size));
}

// The rank with the most has so many.
int64_t num_micro_batches_of(const Recipe& r) {
  const auto& shares = r.parallel.micro_batches;
  if (!shares.empty()) return *std::max_element(shares.begin(), shares.end());
  return r.train.global_batch_size / r.train.micro_batch_size / r.parallel.dp;
}

GradientOrder gradient_order_of(const Recipe& r) {
  const MeshSizes mesh = mesh_sizes_of(r);
  return {.num_micro_batches = num_micro_batches_of(r),
          .tree = r.train.numerics == NumericsChoice::invariant,
          .ranks = mesh.dp,
          .zero_stage = mesh.shards > 1 ? int(r.parallel.zero_stage) : 0,
          .shards = mesh.shards,
          .reduces_in_bf16 = r.train.grad_reduce_dtype == ReduceDtype::bf16,
          .unequal = has_unequal_shares(r.parallel) ? r.parallel.micro_batches : std::vector<int64_t>(),
          .shares_vary = r.train.rebalance && r.parallel.dp > 1};
}

ContextPlan context_plan_of(const Recipe& r) {
  using Keys = ContextPlan::Keys;
  const auto& p = r.parallel;
  if (p.cp == 1) return {};
  switch (p.cp_comm_type) {
    case CpCommType::p2p:
      return {.keys = Keys::ring};
    case CpCommType::all_gather:
      return {.keys = Keys::gathered};
    case CpCommType::a2a:
      return {.head_ranks = p.cp};
    case CpCommType::a2a_p2p:
      break;
  }
  return {.keys = Keys::ring, .head_ranks = p.cp_a2a_size};
}

LayerPlan layer_plan_of(const Recipe& r, const ModelSpec& model) {
  const bool cut = r.parallel.tp > 1;
  return {.stream = cut && r.parallel.sequence_parallel ? Spmd::Shard0 : Spmd::Invariant,
          .cut_vocabulary = cut,
          .keys_everywhere = r.parallel.tp > model.num_kv_heads,
          .context = context_plan_of(r),
          .capacity = {.factor = r.moe.capacity_factor.value_or(0), .drops = r.moe.overflow == ExpertOverflow::drop},
          .keep_activations = r.parallel.recompute != RecomputeKind::selective};
}

// Multiply-adds of a token forward. The embedding only looks up.
BlockLayout block_layout_of(const Recipe& r, const ModelSpec& m) {
  if (!r.parallel.pipeline_layout.empty()) return r.parallel.pipeline_layout;
  BlockCosts costs{.blocks = {}, .head = double(m.head == HeadKind::score ? 1 : m.vocab_size) * double(m.width)};
  for (int64_t l = 0; l < m.num_layers; ++l) {
    const LayerSpec layer = m.layer(l);
    const ExpertsSpec& e = m.experts;
    const int64_t inner = layer.experts ? e.chosen * e.width + e.shared_width : m.ffn_width;
    const int64_t router = layer.experts ? m.width * e.count : 0;
    const double matrices = double((is_gated(layer.mlp) ? 3 : 2) * m.width * inner + router) + attention_weights(m);
    const double keys =
        layer.window > 0 ? double(std::min(layer.window, r.train.seq_length)) : double(r.train.seq_length) / 2;
    costs.blocks.push_back(matrices + keys * double(m.q_width() + m.result_width()));
  }
  return balanced_layout(costs, pipeline_of(r).num_virtual_stages());
}

std::vector<ModelPart> parts_of(const Recipe& r, const ModelSpec& model, int stage) {
  const Pipeline pipeline = pipeline_of(r);
  const BlockLayout layout = block_layout_of(r, model);
  const int last = pipeline.num_virtual_stages() - 1;
  std::vector<ModelPart> parts;
  for (int chunk = 0; chunk < pipeline.num_chunks; ++chunk) {
    const int v = virtual_stage(pipeline, {stage, chunk});
    parts.push_back({.blocks = {first_block(layout, v), layout[size_t(v)]}, .embedding = v == 0, .head = v == last});
  }
  return parts;
}

namespace {

void check_stages(const Recipe& r, const ModelSpec& m) {
  const Pipeline pipeline = pipeline_of(r);
  const BlockLayout& layout = r.parallel.pipeline_layout;
  const std::string fault = layout.empty() ? "" : layout_fault(layout, pipeline.num_virtual_stages(), m.num_layers);
  if (!layout.empty() && fault.empty()) return;
  if (const auto nearest = nearest_layout(layout, m.num_layers))
    throw ConfigError(fmt::format(
        "parallel.pipeline_layout = {} cannot run: {}; the nearest that works: parallel.pipeline_layout = {}",
        to_string(layout), fault, to_string(*nearest)));
  if (int64_t(pipeline.num_stages) * pipeline.num_chunks <= m.num_layers) return;
  const int64_t stages = m.num_layers / pipeline.num_chunks;
  throw ConfigError(fmt::format(
      "parallel.pp = {} cannot run: {} stages of {} chunks for a model of {} blocks; the nearest that works: {}{}",
      r.parallel.pp, pipeline.num_stages, pipeline.num_chunks, m.num_layers,
      stages > 0 ? fmt::format("parallel.pp = {}", stages)
                 : fmt::format("parallel.pp = {} and parallel.pipeline_schedule = \"1f1b\" and "
                               "parallel.virtual_pipeline_parallel_size = 0",
                               std::min(r.parallel.pp, m.num_layers)),
      layout.empty() ? "" : " and parallel.pipeline_layout = []"));
}

// Heads that are dealt out over ranks of cp are whole key heads, with the query heads that read them, on every rank of
// tp.
void check_head_exchange(const Recipe& r, const ModelSpec& m) {
  const int64_t ranks = context_plan_of(r).head_ranks, tp = r.parallel.tp;
  bool fits = tp <= m.num_kv_heads || ranks == 1;
  for (int64_t rank = 0; rank < tp; ++rank) fits = fits && share_of(m.num_kv_heads, {tp, rank}).count % ranks == 0;
  if (fits) return;
  const bool all = ranks == r.parallel.cp;
  throw ConfigError(fmt::format(
      "parallel.cp_comm_type = \"{}\" cannot run: {} key heads over parallel.tp = {} are no multiple of parallel.{} = "
      "{} on each rank; the nearest that works: parallel.cp_comm_type = {}",
      r.parallel.cp_comm_type, m.num_kv_heads, tp, all ? "cp" : "cp_a2a_size", ranks,
      all ? "\"all_gather\"" : "\"p2p\" and parallel.cp_a2a_size = 0"));
}

// Every rank of ep has as many experts. `key`: which says how many ranks.
void check_experts(const Recipe& r, const ModelSpec& m, const char* key, int64_t ep) {
  const int64_t data_ranks = r.parallel.dp * r.parallel.cp;
  if (ep <= 1) return;
  const auto fits = [&](int64_t ranks) {
    return ranks == 1 || (m.has_experts() && m.experts.count % ranks == 0 && data_ranks % ranks == 0);
  };
  if (fits(ep)) return;
  const std::string fault =
      m.has_experts() ? fmt::format("{} experts cannot be dealt out evenly over so many ranks", m.experts.count)
                      : "the model has no experts";
  throw ConfigError(fmt::format("{0} = {1} cannot run: {2}; the nearest that works: {0} = {3}", key, ep, fault,
                                nearest_where(ep, data_ranks, fits).value_or(1)));
}

// One rank always can.
int64_t nearest_tp(const Recipe& r, const ModelSpec& m) {
  const int64_t most = kMostRanks / (r.parallel.dp * r.parallel.pp * r.parallel.cp);
  const auto fits = [&](int64_t tp) { return cut_fault(m, tp).empty() && tokens_fit(r, tp); };
  return nearest_where(r.parallel.tp, most, fits).value_or(1);
}

}  // namespace

// Axes that it has as the student does may need to become its own.
void fit_teacher(Recipe::Parallel& p) {
  const int64_t ranks = p.dp * p.tp * p.pp * p.cp;
  int64_t left = ranks;
  const auto fit = [&](int64_t& own, int64_t students) {
    const int64_t wanted = own > 0 ? own : students, fitting = std::gcd(wanted, left);
    left /= fitting;
    if (fitting != wanted) own = fitting;
    return fitting;
  };
  const int64_t tp = fit(p.teacher_tp, p.tp), pp = fit(p.teacher_pp, p.pp);
  fit(p.teacher_cp, p.cp);
  p.teacher_ep = std::gcd(p.teacher_ep, ranks / tp / pp);
}

void fit_frozen(Recipe::Parallel& p) {
  const int64_t ranks = p.dp * p.cp;
  if (p.frozen_ep > 0) p.frozen_ep = std::gcd(p.frozen_ep, ranks);
  if (p.frozen_shard_size > 0) p.frozen_shard_size = std::gcd(p.frozen_shard_size, ranks);
  if (p.frozen_shard_size == 1 && p.zero_stage < 3) p.frozen_shard_size = 0;  // which is the same
  fit_teacher(p);
}

void check_frozen_experts(const Recipe& r, const ModelSpec& m) {
  check_experts(r, m, "parallel.frozen_ep", r.parallel.frozen_ep);
}

void check_layout(const Recipe& r, const ModelSpec& m) {
  check_stages(r, m);
  check_experts(r, m, "parallel.ep", r.parallel.ep);
  const int64_t tp = r.parallel.tp;
  if (const std::string fault = cut_fault(m, tp); !fault.empty())
    throw ConfigError(fmt::format("parallel.tp = {} cannot run: {}; the nearest that works: parallel.tp = {}", tp,
                                  fault, nearest_tp(r, m)));
  if (!tokens_fit(r, tp))
    throw ConfigError(fmt::format(
        "parallel.sequence_parallel = true cannot run: {} tokens of a micro-batch{} cannot be cut evenly over "
        "parallel.tp = {}; the nearest that works: parallel.sequence_parallel = false",
        tokens_of(r), r.parallel.cp > 1 ? fmt::format(" on each of parallel.cp = {}", r.parallel.cp) : "", tp));
  check_head_exchange(r, m);
}

}  // namespace weft
