// Models for the tests of tasks: the small one with a head that writes or scores, and some of one block whose numbers
// are known.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/models.h"
#include "safetensors_files.h"
#include "support.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/tokenize/tokenizer.h"

namespace weft::testing {

namespace fs = std::filesystem;

inline fs::path small_model() { return fs::path(kSourceDir) / "tests/golden/llama-gqa"; }

inline nlohmann::json as_reward_model(nlohmann::json config) {
  config.update({{"architectures", {"LlamaForSequenceClassification"}}, {"num_labels", 1}});
  return config;
}

// The small model with a score in place of its head.
inline void write_judge_like_small_model(const fs::path& folder) {
  fs::create_directories(folder);
  spill(folder / "config.json", as_reward_model(nlohmann::json::parse(slurp(small_model() / "config.json"))).dump());
  spill(folder / "tokenizer.json", byte_tokenizer_json());
  const SafetensorsFolder files = SafetensorsFolder::open(small_model());
  std::vector<TensorToWrite> tensors;
  for (const SafetensorsFolder::Tensor& t : files.tensors()) {
    const auto bytes = files.bytes(t);
    const bool is_head = t.name() == "lm_head.weight";
    std::vector<int64_t> shape(t.entry->shape.begin(), t.entry->shape.end());
    if (is_head) shape[0] = 1;  // the row of the first token
    tensors.push_back({is_head ? "score.weight" : t.name(), t.entry->dtype, shape,
                       std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size() / (is_head ? 512 : 1))});
  }
  write_safetensors_folder(folder, tensors);
}

using NamedValues = std::map<std::string, std::vector<float>>;
inline constexpr size_t kWidth = 8, kVocabulary = 257;

// A model of one block, over bytes: weights that are not given are 0, those of norms 1.
inline void write_one_layer(const fs::path& folder, const nlohmann::json& config, NamedValues given) {
  fs::create_directories(folder);
  spill(folder / "config.json", config.dump());
  spill(folder / "tokenizer.json", byte_tokenizer_json());
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape, float otherwise = 0) {
    std::vector<float>& values = given[name];
    values.resize(size_t(shape[0] * (shape.size() > 1 ? shape[1] : 1)), otherwise);
    tensors.push_back({name, FileDType::f32, shape,
                       std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))});
  };
  const bool scores = given.contains("score.weight");
  add("model.embed_tokens.weight", {kVocabulary, kWidth});
  scores ? add("score.weight", {1, kWidth}) : add("lm_head.weight", {kVocabulary, kWidth});
  for (const char* norm : {"norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"})
    add(fmt::format("model.{}.weight", norm), {kWidth}, 1);
  for (const char* name : {"self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    add(fmt::format("model.layers.0.{}.weight", name), {kWidth, kWidth});
  for (const char* name : {"self_attn.k_proj", "self_attn.v_proj"})
    add(fmt::format("model.layers.0.{}.weight", name), {kWidth / 2, kWidth});
  write_safetensors_folder(folder, tensors);
}

// States [0] of all ids but one, [1] of that.
inline std::vector<float> one_id_apart(int32_t id) {
  std::vector<float> embedding(kVocabulary * kWidth, 0.0f);
  for (size_t i = 0; i < kVocabulary; ++i) embedding[i * kWidth + (i == size_t(id) ? 1 : 0)] = 1;
  return embedding;
}

// Behind a blank it writes 7, and behind anything else a blank. Each of the two has a probability of nearly 1 there.
inline void write_sevens(const fs::path& folder) {
  std::vector<float> head(kVocabulary * kWidth, 0.0f);
  head[' ' * kWidth] = head['7' * kWidth + 1] = 10;
  write_one_layer(folder, nlohmann::json::parse(kOneLayer),
                  {{"model.embed_tokens.weight", one_id_apart(' ')}, {"lm_head.weight", head}});
}

// A judge that attends to all tokens alike, and takes the share of sevens from them.
inline void write_judge_of_sevens(const fs::path& folder) {
  std::vector<float> values(4 * kWidth, 0.0f), output(kWidth * kWidth, 0.0f), score(kWidth, 0.0f);
  values[1] = output[2 * kWidth] = score[2] = 1;
  write_one_layer(folder, as_reward_model(nlohmann::json::parse(kOneLayer)),
                  {{"model.embed_tokens.weight", one_id_apart('7')},
                   {"model.layers.0.self_attn.v_proj.weight", values},
                   {"model.layers.0.self_attn.o_proj.weight", output},
                   {"score.weight", score}});
}
inline double score_of_share(double sevens, double tokens) {
  const double eps = 1e-5, state = sevens / tokens / std::sqrt(1.0 / kWidth + eps);
  return state / std::sqrt((1 + state * state) / kWidth + eps);
}

}  // namespace weft::testing
