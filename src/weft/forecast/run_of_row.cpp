#include <algorithm>
#include <cctype>
#include <numeric>

#include "weft/base/error.h"
#include "weft/forecast/device.h"
#include "weft/forecast/run_rows.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

constexpr int64_t kLoraRank = 64;     // of rows that do not say it
constexpr double kBytesTrained = 16;  // for each parameter: bf16 weight and gradient, f32 master and two moments
constexpr double kBytesFrozen = 2;

bool contains(std::string text, std::string_view part) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text.find(part) != std::string::npos;
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

ModelSpec model_of(const RunRow& row) {
  for (const auto& [value, name] : {std::pair(row.n_layers, "n_layers"),
                                    {row.d_model, "d_model"},
                                    {row.n_heads, "n_heads"},
                                    {row.ffn, "ffn"},
                                    {row.vocab, "vocab"},
                                    {row.seq_len, "seq_len"}})
    need(row, value, name);
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
              .ffn_width = row.ffn,
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

// Whether a device has room for weights, gradients and an optimizer's states that are not sharded.
bool states_fit(const RunRow& row, const ModelSpec& m, int64_t cut) {
  const double d = double(m.width), mlp = d * double(m.ffn_width) * (m.mlp == MlpKind::swiglu ? 3 : 2);
  const double block = d * double(m.head_dim) * 2 * double(m.num_heads + m.num_kv_heads) + mlp;
  const double params = double(m.num_layers) * block + d * double(m.vocab_size) * (m.tied_head ? 1 : 2);
  const double bytes = row.task == "lora" || row.task == "qlora" ? kBytesFrozen : kBytesTrained;
  return params * bytes / double(cut) < preset_of(row.device).device.memory_bytes;
}

void set_layout(const RunRow& row, RowRun& run) {
  Recipe& r = run.recipe;
  auto& p = r.parallel;
  p.tp = std::max<int64_t>(1, row.tp);
  p.pp = std::max<int64_t>(1, row.pp);
  p.cp = std::max<int64_t>(1, row.cp);
  p.dp = row.dp > 0 ? row.dp : std::max<int64_t>(1, row.n_gpus / (p.tp * p.pp * p.cp));
  if (p.dp * p.tp * p.pp * p.cp != row.n_gpus)
    throw ConfigError(fmt::format("row {}: dp x tp x pp x cp = {} are not its {} devices", row.id,
                                  p.dp * p.tp * p.pp * p.cp, row.n_gpus));
  p.ep = std::max<int64_t>(1, row.ep);
  if (p.ep > 1 && (p.dp * p.cp) % p.ep != 0) {
    p.ep = std::gcd(p.ep, p.dp * p.cp);
    run.notes.push_back(fmt::format("ep = {} goes over tp too, planned with ep = {}", row.ep, p.ep));
  }
  p.sequence_parallel = p.tp > 1 && row.sp > 0;
  const bool sharded = row.zero_stage < 0 && !states_fit(row, run.config.spec, p.tp * p.pp);
  if (sharded) run.notes.push_back("zero_stage is not said, planned with 3: a device cannot hold all states");
  p.zero_stage = p.dp * p.cp == 1 ? 0 : sharded ? 3 : std::max<int64_t>(0, row.zero_stage);
  if (p.zero_stage > 0 && row.fsdp_shard > 0 && (p.dp * p.cp) % row.fsdp_shard == 0 && row.fsdp_shard < p.dp * p.cp)
    p.zero_shard_size = row.fsdp_shard;
  if (p.pp > 1 && row.vpp > 1) {
    p.pipeline_schedule = ScheduleKind::interleaved_1f1b;
    p.virtual_pipeline_parallel_size = row.vpp;
  }
  if (row.recompute == "full") p.recompute = RecomputeKind::full;
  if (row.recompute == "selective") p.recompute = RecomputeKind::selective;
}

void set_batch(const RunRow& row, RowRun& run) {
  auto& t = run.recipe.train;
  const auto& p = run.recipe.parallel;
  need(row, row.global_batch, "global_batch");
  t.seq_length = row.seq_len;
  t.global_batch_size = row.global_batch;
  t.micro_batch_size = row.micro_batch;
  if (t.micro_batch_size == 0) {
    t.micro_batch_size = row.grad_accum > 0 ? std::max<int64_t>(1, row.global_batch / p.dp / row.grad_accum) : 1;
    run.notes.push_back(fmt::format("micro_batch is not said, planned with {}", t.micro_batch_size));
  }
  if (t.global_batch_size % (p.dp * t.micro_batch_size) != 0)
    throw ConfigError(fmt::format("row {}: global_batch = {} is no multiple of dp x micro_batch = {}", row.id,
                                  t.global_batch_size, p.dp * t.micro_batch_size));
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
      std::max({row.micro_batch, row.grad_accum, row.global_batch, row.moe_shared, row.moe_topk}) <= int64_t{1} << 31;
  if (!fits) throw ConfigError(fmt::format("row {} has numbers beyond what can be planned", row.id));
}

}  // namespace

RowRun run_of(const RunRow& row) {
  require_plannable(row);
  RowRun run;
  run.config.spec = model_of(row);
  run.config.has_folder = false;
  set_layout(row, run);
  set_batch(row, run);
  settle_schedule(run);
  Recipe& r = run.recipe;
  r.model.path = row.model;
  r.train.precision = row.precision == "fp16"  ? PrecisionChoice::fp16
                      : row.precision == "f32" ? PrecisionChoice::f32
                                               : PrecisionChoice::bf16;
  if (row.moe_experts > 0) {  // a balanced load
    r.moe.capacity_factor = 1;
    r.moe.overflow = ExpertOverflow::drop;
  }
  if (row.task == "lora" || row.task == "qlora") {
    r.adapter.kind = row.task == "lora" ? AdapterKind::lora : AdapterKind::qlora;
    r.adapter.rank = kLoraRank;
  }
  return run;
}

}  // namespace weft
