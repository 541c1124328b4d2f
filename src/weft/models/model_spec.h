// What a decoder-only transformer is, as plain values: everything the layers need, nothing about where it came from.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

enum class Family : uint8_t { gpt2, llama, mistral, qwen2, qwen3, deepseek_v2, deepseek_v3 };
enum class NormKind : uint8_t { layer_norm, rms_norm };
enum class MlpKind : uint8_t { gelu_tanh, gelu_erf, swiglu };

// Rotary positions: pair (i, i + head_dim / 2) of a head turns by position * frequency[i].     Su et al. 2021
struct RopeSpec {
  enum class Scaling : uint8_t { none, linear, llama3 };
  double theta = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1;            // linear, llama3
  double low_freq_factor = 1;   // llama3: wavelengths above original / low are slowed by `factor` ...
  double high_freq_factor = 4;  // ... those below original / high are kept, those between are blended
  int64_t original_positions = 0;
  bool operator==(const RopeSpec&) const = default;
};

struct Dropouts {        // probabilities of being zeroed while training
  double embedding = 0;  // after the embeddings
  double hidden = 0;     // on what each sublayer adds to the stream
  double attention = 0;  // on attention probabilities
};

// What a block is, where the blocks of a model may differ.
struct LayerSpec {
  NormKind norm = NormKind::rms_norm;
  MlpKind mlp = MlpKind::swiglu;
  std::optional<RopeSpec> rope = {};  // rotation of queries and keys
  int64_t window = 0;                 // keys a query sees, itself included; 0: all before it
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
  MlpKind mlp = MlpKind::swiglu;
  bool learned_positions = false;     // a table of positions (gpt2) ...
  std::optional<RopeSpec> rope = {};  // ... or rotation
  bool qkv_bias = false, attention_out_bias = false, mlp_bias = false;
  bool qk_norm = false;                   // RMSNorm of each head of q and k
  bool tied_head = false;                 // the output head is the embedding table
  std::optional<LatentSpec> latent = {};  // instead of num_kv_heads heads of keys and values
  // Of each block, where they are not all as norm, mlp and rope say, without a window.
  std::vector<LayerSpec> layers = {};

  int64_t unread_layers = 0;  // behind the model's, in its folder: modules that weft does not have

  double init_std = 0.02;          // of every matrix and table
  double residual_init_scale = 1;  // further factor on the two matrices that write to the stream (gpt2: 1/sqrt(2 L))
  Dropouts dropout = {};

  LayerSpec layer(int64_t l) const { return layers.empty() ? LayerSpec{norm, mlp, rope} : layers[size_t(l)]; }
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
