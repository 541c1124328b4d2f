#include "weft/models/hf_deepseek.h"

#include "weft/base/error.h"
#include "weft/models/hf_experts.h"
#include "weft/models/hf_rope.h"

namespace weft {
namespace {

using namespace hf_ranges;

// A rank that is null says that there is no latent: 0. It must be there.
int64_t read_q_rank(HfFields& f) {
  if (!f.absent("q_lora_rank") && !f.has("q_lora_rank")) return 0;
  return f.integer("q_lora_rank", kWidth);
}

LatentSpec read_latent(HfFields& f) {
  LatentSpec latent{.q_rank = read_q_rank(f),
                    .kv_rank = f.integer("kv_lora_rank", kWidth),
                    .nope_dim = f.integer("qk_nope_head_dim", kWidth),
                    .rope_dim = f.integer("qk_rope_head_dim", kWidth),
                    .v_dim = f.integer("v_head_dim", kWidth),
                    .interleaved = f.flag("rope_interleave", true)};
  if (latent.rope_dim % 2 != 0) f.refuse("qk_rope_head_dim", "an odd number of columns cannot be rotated in pairs");
  const int64_t e = latent.nope_dim + latent.rope_dim;
  if (f.integer("qk_head_dim", kWidth, e) != e)
    f.refuse("qk_head_dim", fmt::format("qk_nope_head_dim and qk_rope_head_dim make {}", e));
  if (const int64_t head = f.integer("head_dim", kWidth, e); head != e && head != latent.rope_dim)
    f.refuse("head_dim", fmt::format("it is qk_rope_head_dim, or {} with qk_nope_head_dim", e));
  return latent;
}

}  // namespace

ModelSpec read_deepseek(HfFields& f, Family family) {
  ModelSpec s;
  s.family = family;
  s.vocab_size = f.integer("vocab_size", kSize);
  s.width = f.integer("hidden_size", kWidth);
  s.num_layers = f.integer("num_hidden_layers", kLayers);
  s.num_heads = s.num_kv_heads = f.integer("num_attention_heads", kWidth);
  if (f.integer("num_key_value_heads", kWidth, s.num_heads) != s.num_heads)
    f.refuse("num_key_value_heads", "each head has keys and values of its own, made of the latent");
  s.latent = read_latent(f);
  s.head_dim = s.latent->nope_dim + s.latent->rope_dim;
  s.ffn_width = f.integer("intermediate_size", kSize);
  s.max_positions = f.integer("max_position_embeddings", kSize, family == Family::deepseek_v2 ? 2048 : 4096);
  s.norm_eps = f.number("rms_norm_eps", {.max = 1}, 1e-6);
  if (const std::string act = f.string("hidden_act", "silu"); act != "silu" && act != "swish")
    f.refuse("hidden_act", "weft does silu");
  s.rope = read_rope(f, {.head_dim = s.latent->rope_dim, .max_positions = s.max_positions});
  s.latent->score_factor = s.rope->score_magnitude * s.rope->score_magnitude;
  s.tied_head = f.flag("tie_word_embeddings", false);
  s.init_std = f.number("initializer_range", {.max = 100}, 0.02);
  s.dropout.attention = f.number("attention_dropout", kProbability, 0);
  s.unread_layers = f.integer("num_nextn_predict_layers", {.min = 0, .max = kLayers.max}, 0);
  s.mtp_block = {s.norm, s.mlp, s.rope};
  read_experts(f, s);
  return s;
}

}  // namespace weft
