// config.json of models that train in no time, over the byte tokenizer's 257 ids.
#pragma once

namespace weft::testing {

inline constexpr const char* kOneLayer =
    R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 8, "num_hidden_layers": 1,
  "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 8, "max_position_embeddings": 64,
  "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";

inline constexpr const char* kTwoLayers =
    R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 16, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24, "max_position_embeddings": 64,
  "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";

}  // namespace weft::testing
