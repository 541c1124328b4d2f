// What a decoder-only transformer is, as plain values: everything the layers need, nothing about where it came from.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/ops/ops.h"
#include "weft/sharding/adapter_spec.h"

namespace weft {

enum class Family : uint8_t {
  gpt2,
  llama,
  mistral,
  qwen2,
  qwen3,
  mixtral,
  qwen2_moe,
  qwen3_moe,
  gpt_oss,
  phi3,
  olmo2,
  gemma2,
  gemma3,
  deepseek_v2,
  deepseek_v3
};
enum class NormKind : uint8_t { layer_norm, rms_norm };
// What the last states become: logits of the next token; or one number, the score of a reward model.
enum class HeadKind : uint8_t { vocabulary, score };
enum class MlpKind : uint8_t { gelu_tanh, gelu_erf, swiglu, geglu_tanh };
constexpr bool is_gated(MlpKind kind) { return kind == MlpKind::swiglu || kind == MlpKind::geglu_tanh; }
enum class QkNorm : uint8_t { none, heads, all };  // RMS norm of each head of q and k, or of all heads at once

// Rotary positions: the first R numbers of a head turn in pairs (i, i + R / 2), or (2 i, 2 i + 1), pair i by
// position * frequency[i].     Su et al. 2021
struct RopeSpec {
  enum class Scaling : uint8_t { none, linear, llama3, yarn, longrope };
  double theta = 10000;
  int64_t width = 0;           // R; 0: the whole head
  bool interleaved = false;    // neighbours are pairs
  double magnitude = 1;        // cosines and sines are times this
  double score_magnitude = 1;  // and scores of latent attention times the square of this (yarn)
  Scaling scaling = Scaling::none;
  double factor = 1;               // linear, llama3, yarn
  double low_freq_factor = 1;      // llama3: wavelengths above original / low are slowed by `factor` ...
  double high_freq_factor = 4;     // ... those below original / high are kept, those between are blended
  int64_t original_positions = 0;  // llama3, yarn, longrope
  // yarn: pairs that turn more than beta_fast times over the original length are kept, those that turn less than
  // beta_slow times are slowed by `factor`, those between are blended.             Peng et al. 2023
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;  // to whole pairs, where the blend begins and ends
  // longrope: what pair i is slowed by in sequences up to the original length, and in longer ones.   Ding et al. 2024
  std::vector<double> short_factors = {}, long_factors = {};
  bool operator==(const RopeSpec&) const = default;
};

struct Dropouts {        // probabilities of being zeroed while training
  double embedding = 0;  // after the embeddings
  double hidden = 0;     // on what each sublayer adds to the stream
  double attention = 0;  // on attention probabilities
};

// A mixture of experts, each an MLP of the model's kind.
struct ExpertsSpec {
  int64_t count = 0, chosen = 0;  // of a layer, and of them of a token
  int64_t width = 0;              // inner, of one
  double clamp = 0;               // of clamped units (GateKind::clamped), which they have then; 0: SwiGLU
  bool bias = false;              // of the router, and of each expert's matrices
  int64_t shared_width = 0;       // of an MLP that all tokens go through beside them; 0: none
  bool shared_gate = false;       // what that adds is multiplied by the sigmoid of a number of each token
  Routing routing = {};
  // The choice is by scores plus a bias of each expert, which the loads of steps move towards balance (DeepSeek-V3).
  bool correction = false;
  // Factors of losses that are added: balance of each sequence, of the global batch, and the size of router logits.
  double aux_loss_coef = 0, global_aux_loss_coef = 0, z_loss_coef = 0;
  bool operator==(const ExpertsSpec&) const = default;
};

// What a block is, where the blocks of a model may differ.
struct LayerSpec {
  NormKind norm = NormKind::rms_norm;
  MlpKind mlp = MlpKind::swiglu;
  std::optional<RopeSpec> rope = {};  // rotation of queries and keys
  int64_t window = 0;                 // keys a query sees, itself included; 0: all before it
  bool norm_before = true;            // of each half's input ...
  bool norm_behind = false;           // ... and of what it adds to the stream
  bool experts = false;               // ModelSpec::experts in place of the MLP
  bool operator==(const LayerSpec&) const = default;
};

// Heads made of latents (DeepSeek-V2, 2024, sec. 2.1): widths of what the stream is narrowed to, and of a head's parts.
struct LatentSpec {
  int64_t q_rank = 0;  // 0: queries are made of the stream itself
  int64_t kv_rank = 0;
  int64_t nope_dim = 0, rope_dim = 0;  // of a query and a key, head_dim together: not rotated, rotated
  int64_t v_dim = 0;
  bool interleaved = true;  // rotated are pairs (2 i, 2 i + 1), else (i, i + rope_dim / 2)
  double norm_eps = 1e-6;   // of the latents
  double score_factor = 1;  // beside 1 / sqrt(head_dim)
  bool operator==(const LatentSpec&) const = default;
};

struct ModelSpec {
  Family family = Family::llama;
  int64_t vocab_size = 0;
  int64_t width = 0;  // of the residual stream
  int64_t num_layers = 0;
  int64_t num_heads = 0;     // query heads
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  int64_t ffn_width = 0;      // inner width of the MLP
  int64_t max_positions = 0;  // longest sequence the model was made for

  NormKind norm = NormKind::rms_norm;
  double norm_eps = 1e-5;
  double norm_offset = 0;  // norms scale by this + w (gemma: 1)
  MlpKind mlp = MlpKind::swiglu;
  bool learned_positions = false;     // a table of positions (gpt2) ...
  std::optional<RopeSpec> rope = {};  // ... or rotation
  bool qkv_bias = false, attention_out_bias = false, mlp_bias = false;
  QkNorm qk_norm = QkNorm::none;
  double attention_scale = 0;    // of q k^T; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  // scores s become cap tanh(s / cap); 0: they stay
  bool attention_sinks = false;  // a logit of its own for each head
  double embedding_scale = 1;    // of the rows of the embedding table
  double logit_softcap = 0;      // as attention_softcap
  HeadKind head = HeadKind::vocabulary;
  bool begins_score = false;              // the folder that a run begins with has a head over the vocabulary instead
  bool tied_head = false;                 // the output head is the embedding table
  bool predicts_values = false;           // beside it, a row and a bias give each token a value (PPO)
  std::optional<LatentSpec> latent = {};  // instead of num_kv_heads heads of keys and values
  ExpertsSpec experts = {};               // of the blocks that have them
  // What each block is, where they are not all as norm, mlp and rope say, without a window or experts.
  std::vector<LayerSpec> layers = {};

  // Behind the blocks there may be modules that foretell further tokens (DeepSeek-V3, 2024, sec. 2.2). The first of
  // them, with such a block, is part of the model where its loss has a factor. Others are in the folder alone.
  LayerSpec mtp_block = {};
  double mtp_loss_coef = 0;
  int64_t unread_layers = 0;

  std::optional<AdapterSpec> adapter = {};  // what learns, where the model itself is frozen

  double init_std = 0.02;          // of every matrix and table
  double residual_init_scale = 1;  // further factor on the two matrices that write to the stream (gpt2: 1/sqrt(2 L))
  Dropouts dropout = {};

  LayerSpec layer(int64_t l) const { return layers.empty() ? LayerSpec{norm, mlp, rope} : layers[size_t(l)]; }
  bool has_mtp() const { return mtp_loss_coef > 0; }
  bool has_experts() const {
    return (has_mtp() && mtp_block.experts) ||
           std::any_of(layers.begin(), layers.end(), [](const LayerSpec& l) { return l.experts; });
  }
  int64_t q_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
  int64_t result_width() const { return num_heads * (latent ? latent->v_dim : head_dim); }  // of attention
  int64_t rope_width() const { return latent ? latent->rope_dim : head_dim; }               // of a head, rotated
};

// Elements of the matrices of a block's attention; any sizes that fit integers may be multiplied.
inline double attention_weights(const ModelSpec& m) {
  const auto d = double(m.width), q = double(m.q_width());
  if (!m.latent) return d * (2 * q + 2 * double(m.kv_width()));
  const auto q_rank = double(m.latent->q_rank), kv_rank = double(m.latent->kv_rank);
  return (q_rank > 0 ? q_rank * (d + q) : d * q) + d * (kv_rank + double(m.latent->rope_dim)) +
         kv_rank * double(m.num_heads) * double(m.latent->nope_dim + m.latent->v_dim) + double(m.result_width()) * d;
}

}  // namespace weft
