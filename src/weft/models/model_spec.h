// What a decoder-only transformer is, as plain values: everything the layers need, nothing about where it came from.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/ops/ops.h"

namespace weft {

enum class Family : uint8_t { gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe };
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

// A mixture of experts, each an MLP of the model's kind.
struct ExpertsSpec {
  int64_t count = 0, chosen = 0;  // of a layer, and of them of a token
  int64_t width = 0;              // inner, of one
  int64_t shared_width = 0;       // of an MLP that all tokens go through beside them; 0: none
  bool shared_gate = false;       // what that adds is multiplied by the sigmoid of a number of each token
  Routing routing = {};
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
  bool experts = false;               // ModelSpec::experts in place of the MLP
  bool operator==(const LayerSpec&) const = default;
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
  bool qk_norm = false;      // RMSNorm of each head of q and k
  bool tied_head = false;    // the output head is the embedding table
  ExpertsSpec experts = {};  // of the blocks that have them
  // Of each block, where they are not all as norm, mlp and rope say, without a window or experts.
  std::vector<LayerSpec> layers = {};

  double init_std = 0.02;          // of every matrix and table
  double residual_init_scale = 1;  // further factor on the two matrices that write to the stream (gpt2: 1/sqrt(2 L))
  Dropouts dropout = {};

  LayerSpec layer(int64_t l) const { return layers.empty() ? LayerSpec{norm, mlp, rope} : layers[size_t(l)]; }
  bool has_experts() const {
    return std::any_of(layers.begin(), layers.end(), [](const LayerSpec& l) { return l.experts; });
  }
  int64_t q_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
};

}  // namespace weft
