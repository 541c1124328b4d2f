// A model written as a GGUF file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/gguf/gguf_type.h"
#include "weft/models/hf_config.h"
#include "weft/tokenize/gguf_vocabulary.h"

namespace weft {

struct GgufExport {
  std::filesystem::path model;  // a model's folder or a GGUF file, no adapter's
  std::string name;             // general.name
  GgufType type = GgufType::f16;
  int threads = 1;
};

// Takes the bytes of the file in order.
using GgufSink = std::function<void(std::string_view)>;

struct GgufWritten {
  int64_t bytes = 0, num_tensors = 0, num_numbers = 0;
  std::vector<std::string> notes;  // what is not as the type says, in words
};

// Writes the model of `config`, which require_gguf has passed: norms, biases and positions as F32, matrices as the type
// says. As llama.cpp does, the head (or the table that is the head) is Q6_K where the type is Q4_0 or Q4_K, and rows
// that are no whole blocks fall back: Q6_K to Q8_0, Q4_K to Q5_0, any of these to F16. A few million numbers
// are in memory at a time. Throws FileError, naming the tensor, where a number is not finite, or too large for the
// type.
GgufWritten write_gguf(const GgufExport& what, const HfConfig& config, const GgufVocabulary& vocabulary,
                       const GgufSink& sink);

// The type of a matrix with rows of so many numbers.
GgufType gguf_type_of_matrix(GgufType wanted, bool is_head, int64_t cols);

}  // namespace weft
