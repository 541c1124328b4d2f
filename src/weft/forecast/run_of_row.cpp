#include <algorithm>
#include <numeric>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/forecast/device.h"
#include "weft/forecast/run_rows.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

constexpr int64_t kLoraRank = 64;     // of rows that do not say it
constexpr double kBytesTrained = 16;  // for each parameter: bf16 weight and gradient, f32 master and two moments
constexpr double kBytesFrozen = 2;
constexpr int64_t kMostSequences = int64_t{1} << 31;

bool contains(const std::string& text, std::string_view part) {
  return lower_ascii(text).find(part) != std::string::npos;
}

void need(const RunRow& row, int64_t value, const char* column) {
  if (value <= 0) throw ConfigError(fmt::format("row {} does not say its {}", row.id, column));
}

// DeepSeek-V3 (2024), sec. 4.2: a table has only the number of heads.
void set_latents(ModelSpec& m, int64_t width) {
  m.latent =
      LatentSpec{.q_rank = width >= 4096 ? 1536 : 0, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128};
  m.head_dim = m.latent->nope_dim + m.latent->rope_dim;
  m.num_kv_heads = m.num_heads;
}

void set_experts(const RunRow& row, ModelSpec& m) {
  need(row, row.moe_topk, "moe_topk");
  need(row, row.moe_ffn, "moe_ffn");
  if (row.moe_topk > row.moe_experts)
    throw ConfigError(fmt::format("row {}: moe_topk = {} of moe_experts = {}: a token cannot have so many", row.id,
                                  row.moe_topk, row.moe_experts));
  const bool deepseek = contains(row.model, "deepseek");
  m.experts = {.count = row.moe_experts, .chosen = row.moe_topk, .width = row.moe_ffn};
  if (row.moe_shared > 0) m.experts.shared_width = row.moe_shared * row.moe_ffn;
  if (deepseek) m.experts.routing.sigmoid = m.experts.correction = true;
  const int64_t dense = deepseek ? std::min<int64_t>(3, row.n_layers - 1) : 0;
  for (int64_t l = 0; l < m.num_layers; ++l) {
    m.layers.push_back({m.norm, m.mlp, m.rope});
    m.layers.back().experts = l >= dense;
  }
}

// Sources of models whose blocks all have experts may leave out the width of those that have none.
int64_t ffn_of(const RunRow& row) { return row.ffn == 0 && row.moe_experts > 0 ? row.moe_ffn : row.ffn; }

ModelSpec model_of(const RunRow& row) {
  for (const auto& [value, name] : {std::pair(row.n_layers, "n_layers"),
                                    {row.d_model, "d_model"},
                                    {row.n_heads, "n_heads"},
                                    {ffn_of(row), "ffn"},
                                    {row.vocab, "vocab"},
                                    {row.seq_len, "seq_len"}})
    need(row, value, name);
  if (row.n_kv_heads > 0 && row.n_heads % row.n_kv_heads != 0)
    throw ConfigError(
        fmt::format("row {}: n_heads = {} is no multiple of n_kv_heads = {}", row.id, row.n_heads, row.n_kv_heads));
  const bool gated = row.gated > 0;
  ModelSpec m{.family = row.moe_experts > 0 ? Family::mixtral
                        : gated             ? Family::llama
                                            : Family::gpt2,
              .vocab_size = row.vocab,
              .width = row.d_model,
              .num_layers = row.n_layers,
              .num_heads = row.n_heads,
              .num_kv_heads = row.n_kv_heads > 0 ? row.n_kv_heads : row.n_heads,
              .head_dim = row.head_dim > 0 ? row.head_dim : row.d_model / row.n_heads,
              .ffn_width = ffn_of(row),
              .max_positions = row.seq_len,
              .norm = gated ? NormKind::rms_norm : NormKind::layer_norm,
              .mlp = gated ? MlpKind::swiglu : MlpKind::gelu_tanh};
  m.tied_head = row.tied_emb > 0;
  if (gated)
    m.rope = RopeSpec{};
  else
    m.learned_positions = m.qkv_bias = m.attention_out_bias = m.mlp_bias = true;
  if (contains(row.model, "deepseek")) set_latents(m, row.d_model);
  if (row.moe_experts > 0) set_experts(row, m);
  return m;
}

AdapterKind adapter_of(const RunRow& row) {
  const std::string task = lower_ascii(row.task);
  return task == "lora" ? AdapterKind::lora : task == "qlora" ? AdapterKind::qlora : AdapterKind::none;
}

// Whether a device has room for weights, gradients and an optimizer's states that are not sharded.
bool states_fit(const RunRow& row, const ModelSpec& m, int64_t cut, int64_t ep) {
  const double d = double(m.width), matrices = m.mlp == MlpKind::swiglu ? 3 : 2;
  const double inner = row.moe_experts > 0
                           ? double(row.moe_experts) / double(ep) * double(row.moe_ffn) + double(m.experts.shared_width)
                           : double(m.ffn_width);
  const double block = d * double(m.head_dim) * 2 * double(m.num_heads + m.num_kv_heads) + d * inner * matrices;
  const double params = double(m.num_layers) * block + d * double(m.vocab_size) * (m.tied_head ? 1 : 2);
  const double bytes = adapter_of(row) == AdapterKind::none ? kBytesTrained : kBytesFrozen;
  return params * bytes / double(cut) < preset_of(row.device).device.memory_bytes;
}

// Over as many ranks as the row says; if it does not, over one, or all that share out experts where none has room.
int64_t expert_ranks(const RunRow& row, RowRun& run) {
  const auto& p = run.recipe.parallel;
  const int64_t ranks = p.dp * p.cp;
  if (row.moe_experts == 0) return 1;
  if (row.ep == 0) {
    const bool fits = states_fit(row, run.config.spec, p.tp * p.pp, 1);
    const int64_t ep = fits ? 1 : std::gcd(row.moe_experts, ranks);
    run.notes.push_back(fmt::format("ep is not said, planned with {}", ep));
    return ep;
  }
  if (ranks % row.ep == 0) return row.ep;
  const int64_t ep = std::gcd(row.ep, ranks);
  run.notes.push_back(fmt::format("ep = {} goes over tp too, planned with ep = {}", row.ep, ep));
  return ep;
}

void set_axes(const RunRow& row, RowRun& run) {
  auto& p = run.recipe.parallel;
  p.tp = std::max<int64_t>(1, row.tp);
  p.pp = std::max<int64_t>(1, row.pp);
  p.cp = std::max<int64_t>(1, row.cp);
  const int64_t replicas = std::max<int64_t>(1, row.n_gpus / (p.tp * p.pp * p.cp));
  p.dp = row.dp > 0 ? row.dp : replicas;
  if (p.dp == replicas * p.cp && p.cp > 1) {  // some count the ranks of cp in it
    p.dp = replicas;
    run.notes.push_back(fmt::format("dp = {} has cp in it, planned with dp = {}", row.dp, p.dp));
  }
  if (p.dp * p.tp * p.pp * p.cp != row.n_gpus)
    throw ConfigError(fmt::format("row {}: dp x tp x pp x cp = {} are not its {} devices", row.id,
                                  p.dp * p.tp * p.pp * p.cp, row.n_gpus));
  if (row.seq_len % (p.cp > 1 ? 2 * p.cp : 1) != 0)
    throw ConfigError(fmt::format("row {}: seq_len = {} is no multiple of 2 x cp = 2 x {}", row.id, row.seq_len, p.cp));
  p.ep = expert_ranks(row, run);
}

void set_sharding(const RunRow& row, RowRun& run) {
  auto& p = run.recipe.parallel;
  if (row.zero_stage > 3)
    throw ConfigError(fmt::format("row {}: zero_stage = {} is none of 0 to 3", row.id, row.zero_stage));
  const bool sharded = row.zero_stage < 0 && !states_fit(row, run.config.spec, p.tp * p.pp, p.ep);
  if (sharded) run.notes.push_back("zero_stage is not said, planned with 3: a device cannot hold all states");
  p.zero_stage = p.dp * p.cp == 1 ? 0 : sharded ? 3 : std::max<int64_t>(0, row.zero_stage);
  if (p.zero_stage > 0 && row.fsdp_shard > 0 && (p.dp * p.cp) % row.fsdp_shard == 0 && row.fsdp_shard < p.dp * p.cp)
    p.zero_shard_size = row.fsdp_shard;
}

void set_layout(const RunRow& row, RowRun& run) {
  set_axes(row, run);
  set_sharding(row, run);
  auto& p = run.recipe.parallel;
  p.sequence_parallel = p.tp > 1 && row.sp > 0;
  if (p.sequence_parallel && row.seq_len / p.cp % p.tp != 0) {
    p.sequence_parallel = false;
    run.notes.push_back(fmt::format("sp cuts no {} tokens over tp = {}, planned without", row.seq_len / p.cp, p.tp));
  }
  if (p.pp > 1 && row.vpp > 1) {
    p.pipeline_schedule = ScheduleKind::interleaved_1f1b;
    p.virtual_pipeline_parallel_size = row.vpp;
  }
  const std::string again = lower_ascii(row.recompute);
  if (again == "full") p.recompute = RecomputeKind::full;
  if (again == "selective") p.recompute = RecomputeKind::selective;
  if (!again.empty() && again != "none" && again != "full" && again != "selective") {
    p.recompute = RecomputeKind::selective;
    run.notes.push_back(fmt::format("recompute = \"{}\" is planned as selective", row.recompute));
  }
}

// The largest part of a rank's sequences that is at most the micro-batch of the row.
int64_t fitting_micro_batch(int64_t sequences, int64_t most) {
  int64_t fits = 1;
  for (int64_t n = 1; n * n <= sequences; ++n) {
    if (sequences % n != 0) continue;
    if (n <= most) fits = std::max(fits, n);
    if (sequences / n <= most) fits = std::max(fits, sequences / n);
  }
  return fits;
}

// As the row says it, or as micro-batches and their number do; 0: neither.
int64_t global_batch_of(const RunRow& row, int64_t dp) {
  if (row.global_batch > 0 || row.micro_batch == 0 || row.grad_accum == 0) return row.global_batch;
  const double sequences = double(dp) * double(row.micro_batch) * double(row.grad_accum);
  if (sequences > double(kMostSequences))
    throw ConfigError(fmt::format(
        "row {}: dp x micro_batch x grad_accum = {:.3g} sequences are more than can be planned", row.id, sequences));
  return int64_t(sequences);
}

void set_batch(const RunRow& row, RowRun& run) {
  auto& t = run.recipe.train;
  const auto& p = run.recipe.parallel;
  t.seq_length = row.seq_len;
  t.global_batch_size = global_batch_of(row, p.dp);
  need(row, t.global_batch_size, "global_batch");
  t.micro_batch_size = row.micro_batch;
  if (t.micro_batch_size == 0) {
    t.micro_batch_size = row.grad_accum > 0 ? std::max<int64_t>(1, t.global_batch_size / p.dp / row.grad_accum) : 1;
    run.notes.push_back(fmt::format("micro_batch is not said, planned with {}", t.micro_batch_size));
  }
  if (t.global_batch_size % p.dp != 0)
    throw ConfigError(
        fmt::format("row {}: global_batch = {} is no multiple of dp = {}", row.id, t.global_batch_size, p.dp));
  const int64_t fits = fitting_micro_batch(t.global_batch_size / p.dp, t.micro_batch_size);
  if (fits != t.micro_batch_size)
    run.notes.push_back(fmt::format("a rank's {} sequences are no multiple of micro_batch = {}, planned with {}",
                                    t.global_batch_size / p.dp, t.micro_batch_size, fits));
  t.micro_batch_size = fits;
}

// What an interleaved schedule cannot do becomes plain 1F1B, with a note.
void settle_schedule(RowRun& run) {
  auto& p = run.recipe.parallel;
  const int64_t chunks = p.pp * std::max<int64_t>(1, p.virtual_pipeline_parallel_size);
  if (p.pipeline_schedule != ScheduleKind::interleaved_1f1b) return;
  if (chunks <= run.config.spec.num_layers && num_micro_batches_of(run.recipe) % p.pp == 0) return;
  run.notes.push_back(fmt::format("vpp = {} is planned without virtual stages", p.virtual_pipeline_parallel_size));
  p.pipeline_schedule = ScheduleKind::one_f_one_b;
  p.virtual_pipeline_parallel_size = 0;
}

// Nothing that is planned overflows, or takes more than moments.
void require_plannable(const RunRow& row) {
  const auto one = [](int64_t n) { return double(std::max<int64_t>(1, n)); };
  const bool fits =
      one(row.dp) * one(row.tp) * one(row.pp) * one(row.cp) <= double(kMostRanks) &&
      std::max({row.n_gpus, row.gpus_per_node, row.ep, row.fsdp_shard}) <= kMostRanks &&
      std::max({row.vpp, row.n_layers}) <= 4096 && row.moe_experts <= 65536 &&
      std::max({row.d_model, row.n_heads, row.head_dim, row.ffn, row.vocab, row.seq_len, row.moe_ffn}) <= int64_t{1}
                                                                                                              << 26 &&
      std::max({row.micro_batch, row.grad_accum, row.global_batch, row.moe_shared, row.moe_topk}) <= kMostSequences;
  if (!fits) throw ConfigError(fmt::format("row {} has numbers beyond what can be planned", row.id));
}

}  // namespace

RowPrecision row_precision(const RunRow& row) {
  using P = RowPrecision;
  if (row.precision.empty()) return P::bf16;
  // In this order: "bfloat16" has "float16" in it, and where products are in fewer bits all else is in 16.
  for (const auto& [part, precision] : {std::pair("fp4", P::fp4),
                                        {"fp8", P::fp8},
                                        {"e4m3", P::fp8},
                                        {"bf16", P::bf16},
                                        {"bfloat16", P::bf16},
                                        {"fp16", P::fp16},
                                        {"float16", P::fp16},
                                        {"f32", P::f32},
                                        {"fp32", P::f32},
                                        {"float32", P::f32}})
    if (contains(row.precision, part)) return precision;
  throw ConfigError(
      fmt::format("row {}: there is no precision \"{}\" among those that are forecast: bf16, fp16, f32, "
                  "fp8, mxfp8, nvfp4",
                  row.id, row.precision));
}

RowRun run_of(const RunRow& row) {
  if (!row.fault.empty()) throw ConfigError(row.fault);
  require_plannable(row);
  RowRun run;
  run.config.spec = model_of(row);
  run.config.has_folder = false;
  set_layout(row, run);
  set_batch(row, run);
  settle_schedule(run);
  Recipe& r = run.recipe;
  r.model.path = row.model;
  const RowPrecision precision = row_precision(row);
  r.train.precision = precision == RowPrecision::fp16  ? PrecisionChoice::fp16
                      : precision == RowPrecision::f32 ? PrecisionChoice::f32
                                                       : PrecisionChoice::bf16;
  if (row.precision.empty()) run.notes.push_back("precision is not said, planned with bf16");
  if (row.moe_experts > 0) {  // a balanced load
    r.moe.capacity_factor = 1;
    r.moe.overflow = ExpertOverflow::drop;
  }
  r.adapter.kind = adapter_of(row);
  if (r.adapter.kind != AdapterKind::none) r.adapter.rank = kLoraRank;
  return run;
}

}  // namespace weft
