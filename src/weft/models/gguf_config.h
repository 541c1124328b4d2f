// A model's configuration as the metadata of a GGUF file. docs/formats/gguf.md has the keys.
#pragma once
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "weft/gguf/gguf_file.h"
#include "weft/gguf/gguf_head.h"
#include "weft/models/hf_config.h"

namespace weft {

// The config.json that a Hugging Face folder of the same model would have, understood as read_hf_config does. Throws
// FileError, by key, where something is missing or of the wrong kind; ConfigError where the file asks for something
// that weft does not do.
HfConfig read_gguf_config(const std::filesystem::path& path);
// Whether the file's head is the embedding table once more, as some programs write it: then it is tied.
bool gguf_head_is_table(const GgufFile& file);

// Throws ConfigError, beginning with `source`, where llama.cpp does not do what the model does; the message names the
// nearest that works.
void require_gguf(const HfConfig& config, std::string_view source);
// Writes the keys of a model that require_gguf has passed. Returns what a user must know, in words.
std::vector<std::string> write_gguf_config(const ModelSpec& model, GgufHead& head);

// The most tokens that such a file lets the model see: fewer than the model has where llama.cpp lacks its window.
int64_t gguf_context(const ModelSpec& model);

// Values of deepseek2.expert_gating_func: what makes scores of a router's logits.
inline constexpr int64_t kGgufSoftmax = 1, kGgufSigmoid = 2;
// weft's own key, of gpt-oss: YaRN's blend begins and ends at whole pairs, as it does not in the published models.
inline constexpr std::string_view kGgufWholePairs = "weft.rope.scaling.truncate";

// Tensors by which a file says what each pair of a head is slowed by. Passed over where weights are looked for.
struct GgufFactors {
  std::string_view name;
  std::vector<float> values;
};
inline constexpr std::array<std::string_view, 3> kGgufRopeFactors{"rope_freqs.weight", "rope_factors_long.weight",
                                                                  "rope_factors_short.weight"};
// Those that a file of this model has.
std::vector<GgufFactors> gguf_rope_factors(const ModelSpec& model);

}  // namespace weft
