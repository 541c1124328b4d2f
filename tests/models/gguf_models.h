// Models written as GGUF files, and what is compared of them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "safetensors_files.h"
#include "support.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/gguf_config.h"
#include "weft/models/gguf_export.h"
#include "weft/models/weight_source.h"

namespace weft::gguf_models {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::TempDir;
using testing::TensorToWrite;

inline fs::path golden(const std::string& name) { return fs::path(testing::kSourceDir) / "tests/golden" / name; }

inline void write_gguf_file(const fs::path& model, const fs::path& to, GgufType type,
                            std::vector<std::string>* notes = nullptr) {
  const HfConfig config = read_hf_config(model);
  require_gguf(config, model.string());
  std::string bytes;
  const GgufWritten written = write_gguf({.model = model, .name = "m", .type = type}, config, {},
                                         [&](std::string_view piece) { bytes += piece; });
  EXPECT_EQ(written.bytes, int64_t(bytes.size()));
  testing::spill(to, bytes);
  EXPECT_EQ(written.num_tensors, int64_t(GgufFile(to).tensors().size()));
  if (notes != nullptr) *notes = written.notes;
}

inline std::vector<float> numbers_of(const WeightSource& source, size_t i) {
  const HfTensor& t = source.tensors()[i];
  std::vector<float> x(size_t(t.rows * t.cols()));
  source.read(i, {}, {.data = x.data(), .dtype = DType::f32, .rows = t.rows, .cols = t.cols(), .row_stride = t.cols()});
  return x;
}

// The largest difference of a weight, of two sources of one model.
inline double largest_difference(const WeightSource& a, const WeightSource& b) {
  EXPECT_EQ(a.tensors().size(), b.tensors().size());
  double most = 0;
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    EXPECT_EQ(a.tensors()[i].name, b.tensors()[i].name);
    const auto x = numbers_of(a, i), y = numbers_of(b, i);
    for (size_t j = 0; j < x.size(); ++j) most = std::max(most, double(std::abs(x[j] - y[j])));
  }
  return most;
}

// All that a config says of the model, but for what GGUF has no place for.
inline Json words_of(const ModelSpec& m) {
  Json layers = Json::array();
  for (int64_t i = 0; i < m.num_layers; ++i)
    layers.push_back({m.layer(i).window, m.layer(i).rope ? m.layer(i).rope->theta : 0, m.layer(i).experts});
  const Routing& r = m.experts.routing;
  const LatentSpec l = m.latent.value_or(LatentSpec());
  return {m.vocab_size,
          m.width,
          m.num_layers,
          m.num_heads,
          m.num_kv_heads,
          m.head_dim,
          m.ffn_width,
          m.max_positions,
          m.norm_eps,
          m.norm_offset,
          int(m.norm),
          int(m.mlp),
          m.learned_positions,
          m.qkv_bias,
          m.attention_out_bias,
          m.mlp_bias,
          int(m.qk_norm),
          m.attention_scale,
          m.attention_softcap,
          m.embedding_scale,
          m.logit_softcap,
          m.tied_head,
          m.experts.count,
          m.experts.chosen,
          m.experts.width,
          m.experts.shared_width,
          m.experts.shared_gate,
          m.experts.clamp,
          m.experts.bias,
          m.experts.correction,
          m.attention_sinks,
          {r.sigmoid, r.normalise, r.scale, r.groups, r.top_groups, r.by_two},
          {l.q_rank, l.kv_rank, l.nope_dim, l.rope_dim, l.v_dim, l.interleaved, l.norm_eps, l.score_factor},
          layers};
}

// A folder with the weights of a golden case and some fields of config.json changed.
inline void change_config(const std::string& name, const Json& changes, const TempDir& dir) {
  Json config = Json::parse(testing::slurp(golden(name) / "config.json"));
  config.update(changes);
  testing::spill(dir / "config.json", config.dump());
  fs::create_symlink(golden(name) / "model.safetensors", dir / "model.safetensors");
}

// A folder of that family with two layers and numbers that are all different.
inline ModelSpec write_small(const Json& config, const TempDir& dir) {
  testing::spill(dir / "config.json", config.dump());
  const ModelSpec model = read_hf_config(dir.path()).spec;
  std::vector<TensorToWrite> files;
  float next = 0;
  for (const HfTensor& t : hf_tensors(model)) {
    if (t.slice > 0) continue;
    std::vector<float> numbers(size_t(t.rows * t.cols() * t.slices));
    for (float& x : numbers) x = std::sin(next += 1);
    files.push_back({t.name, FileDType::f32, t.shape,
                     std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float))});
  }
  testing::write_safetensors_folder(dir.path(), files);
  return model;
}

}  // namespace weft::gguf_models
