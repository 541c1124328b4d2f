// Folders of models whose weights are random, for tests.
#pragma once
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "safetensors_files.h"
#include "support.h"
#include "weft/models/hf_config.h"
#include "weft/models/hf_names.h"

namespace weft::testing {

// A model's folder, in f32: `numbers_of` says what each of its tensors, [rows, cols] as weft has it, holds.
inline void write_model_folder(
    const std::filesystem::path& folder, const nlohmann::json& config,
    const std::function<std::vector<float>(size_t index, const HfTensor& tensor)>& numbers_of) {
  std::filesystem::create_directories(folder);
  spill(folder / "config.json", config.dump());
  std::vector<TensorToWrite> files;
  const std::vector<HfTensor> tensors = hf_tensors(parse_hf_config(config, "config.json").spec);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const HfTensor& t = tensors[i];
    const std::vector<float> numbers = numbers_of(i, t);
    std::string bytes;
    stream_matrix(
        {.data = numbers.data(), .dtype = DType::f32, .rows = t.rows, .cols = t.cols(), .row_stride = t.cols()},
        FileDType::f32, t.transposed, [&](std::span<const std::byte> piece) {
          bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        });
    if (t.slice > 0)
      files.back().bytes += bytes;
    else
      files.push_back({t.name, FileDType::f32, t.shape, bytes});
  }
  write_safetensors_folder(folder, files);
}

inline void write_random_model(const std::filesystem::path& folder, const nlohmann::json& config, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  write_model_folder(folder, config, [&](size_t, const HfTensor& t) {
    std::vector<float> numbers(size_t(t.rows * t.cols()));
    const bool vector = t.shape.size() == 1;
    for (float& x : numbers) x = vector ? 1 + 0.1F * normal(random) : 0.3F * normal(random);
    return numbers;
  });
}

}  // namespace weft::testing
