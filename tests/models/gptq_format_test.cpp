// Matrices in codes on disk, by numbers that were made by hand.
#include "weft/models/gptq_format.h"

#include <gtest/gtest.h>

#include <numeric>

#include "safetensors_files.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/models/hf_config.h"
#include "weft/models/hf_names.h"

namespace weft {
namespace {

using testing::TempDir;
using testing::TensorToWrite;
using Json = nlohmann::json;

std::vector<uint32_t> unsigned_words(const std::vector<int32_t>& words) { return {words.begin(), words.end()}; }

GptqMatrix counting(int64_t rows, int64_t cols, int bits) {
  GptqMatrix m{.rows = rows, .cols = cols, .codes = {}, .scales = {}, .zeros = {}, .group_of = {}};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) m.codes.push_back(uint8_t((i + j) % (1 << bits)));
  m.scales.assign(size_t(rows), f16(1.0F));
  m.zeros.assign(size_t(rows), uint8_t(1 << (bits - 1)));
  m.group_of.assign(size_t(cols), 0);
  return m;
}

TEST(GptqFormat, EightCodesOfConsecutiveColumnsAreAWord) {
  const GptqFormat f{.bits = 4, .group_size = 0};
  const GptqMatrix m = counting(8, 16, 4);
  const std::vector<uint32_t> words = unsigned_words(packed_codes(f, m));  // [2, 8]
  ASSERT_EQ(words.size(), 16u);
  EXPECT_EQ(words[0], 0x76543210u);
  EXPECT_EQ(words[1], 0x87654321u);
  EXPECT_EQ(words[8], 0xfedcba98u);
  EXPECT_EQ(words[9], 0x0fedcba9u);
  EXPECT_EQ(unsigned_words(packed_zeros(f, m)), (std::vector<uint32_t>{0x77777777u})) << "8, less by 1";
  EXPECT_EQ(unsigned_words(packed_zeros({.bits = 4, .group_size = 0, .zeros_less_one = false}, m)),
            (std::vector<uint32_t>{0x88888888u}));
}

TEST(GptqFormat, FourCodesOf8BitsAreAWord) {
  const GptqFormat f{.bits = 8, .group_size = 0};
  GptqMatrix m = counting(4, 4, 8);
  m.codes = {1, 2, 3, 255, 4, 5, 6, 7, 128, 0, 0, 1, 9, 9, 9, 9};
  EXPECT_EQ(unsigned_words(packed_codes(f, m)),
            (std::vector<uint32_t>{0xff030201u, 0x07060504u, 0x01000080u, 0x09090909u}));
  m.zeros = {128, 1, 0, 255};
  EXPECT_EQ(unsigned_words(packed_zeros(f, m)), (std::vector<uint32_t>{0xfeff007fu}));
}

std::string bytes_of_words(const std::vector<uint32_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * 4};
}
std::string bytes_of_halves(const std::vector<float>& numbers) {
  std::string bytes;
  for (const float x : numbers) {
    const f16 half(x);
    bytes.append(reinterpret_cast<const char*>(&half), 2);
  }
  return bytes;
}

// "m.weight" [8, 8] in 4 bits and two groups: codes of row i are 0x76543210 + i in each place; the columns of group 1
// are 0 and 5.
std::vector<TensorToWrite> by_hand() {
  std::vector<uint32_t> codes;
  for (uint32_t i = 0; i < 8; ++i) codes.push_back(0x76543210u + i * 0x11111111u);
  return {{"m.qweight", FileDType::i32, {1, 8}, bytes_of_words(codes)},
          {"m.qzeros", FileDType::i32, {2, 1}, bytes_of_words({0x77777777u, 0xf7777770u})},
          {"m.scales", FileDType::f16, {2, 8}, bytes_of_halves({1, 1, 1, 1, 1, 1, 1, 0.5, 2, 2, 2, 2, 2, 2, 2, 4})},
          {"m.g_idx", FileDType::i32, {8}, bytes_of_words({1, 0, 0, 0, 0, 1, 0, 0})}};
}

const GptqFormat kByHand{.bits = 4, .group_size = 4};

TEST(GptqFormat, ReadsWhatTheCodesStandFor) {
  TempDir dir;
  testing::write_safetensors_folder(dir.path(), by_hand());
  const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
  const auto tensors = GptqTensors::find(folder, kByHand, "m.weight", 8, 8);
  ASSERT_TRUE(tensors.has_value());
  EXPECT_EQ(tensors->entries().size(), 4u);
  std::vector<float> all(64);
  tensors->read(folder, {}, {.data = all.data(), .dtype = DType::f32, .rows = 8, .cols = 8, .row_stride = 8});
  EXPECT_EQ(std::vector<float>(all.begin(), all.begin() + 8),
            (std::vector<float>{2 * (0 - 1), 1 - 8, 2 - 8, 3 - 8, 4 - 8, 2 * (5 - 1), 6 - 8, 7 - 8}))
      << "row 0: zero points 8 and 1";
  EXPECT_EQ(std::vector<float>(all.begin() + 56, all.end()),
            (std::vector<float>{4 * 7, 0, 0.5, 1, 1.5, 4 * 12, 2.5, 3}))
      << "row 7: codes 7 to 14, zero points 8 and, as 15 is stored, 0";
  std::vector<double> part(2 * 5, -1);
  tensors->read(folder, {6, 4}, {.data = part.data(), .dtype = DType::f64, .rows = 2, .cols = 3, .row_stride = 5});
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(part[size_t(i * 5 + j)], double(all[size_t((6 + i) * 8 + 4 + j)]));
  EXPECT_EQ(part[3], -1) << "between rows nothing is written";
  EXPECT_FALSE(GptqTensors::find(folder, kByHand, "other.weight", 8, 8).has_value());
}

TEST(GptqFormat, WhatIsWrittenIsReadToTheBit) {
  for (const int bits : {4, 8}) {
    TempDir dir;
    const GptqFormat f{.bits = bits, .group_size = 32, .zeros_less_one = bits == 4};
    GptqMatrix m = counting(32, 64, bits);
    m.scales.clear(), m.zeros.clear();
    for (int i = 0; i < 64; ++i) m.scales.push_back(f16(0.01F * float(i + 1))), m.zeros.push_back(uint8_t(i % 15));
    for (size_t j = 0; j < 64; ++j) m.group_of[j] = int32_t(j * 7 % 2);
    const GptqTensorShapes shapes = gptq_shapes(f, 32, 64);
    const auto words = [](const std::vector<int32_t>& w) { return bytes_of_words({w.begin(), w.end()}); };
    testing::write_safetensors_folder(
        dir.path(), {{"m.qweight", FileDType::i32, shapes.codes, words(packed_codes(f, m))},
                     {"m.qzeros", FileDType::i32, shapes.zeros, words(packed_zeros(f, m))},
                     {"m.scales", FileDType::f16, shapes.scales,
                      std::string(reinterpret_cast<const char*>(m.scales.data()), m.scales.size() * 2)},
                     {"m.g_idx", FileDType::i32, shapes.group_of, words(m.group_of)}});
    const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
    std::vector<float> all(32 * 64);
    GptqTensors::find(folder, f, "m.weight", 32, 64)
        ->read(folder, {}, {.data = all.data(), .dtype = DType::f32, .rows = 32, .cols = 64, .row_stride = 64});
    EXPECT_EQ(all, numbers_of(m)) << bits;
  }
}

std::string find_error(std::vector<TensorToWrite> tensors, const GptqFormat& format = kByHand, int64_t rows = 8) {
  TempDir dir;
  testing::write_safetensors_folder(dir.path(), tensors);
  const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
  return testing::error_of<FileError>([&] { GptqTensors::find(folder, format, "m.weight", rows, 8); });
}

TEST(GptqFormat, RefusesTensorsThatDoNotFit) {
  EXPECT_EQ(find_error(by_hand()), "");
  auto tensors = by_hand();
  tensors.pop_back();
  EXPECT_EQ(find_error(tensors), "") << "without g_idx, groups are consecutive columns";
  EXPECT_SAYS(find_error(tensors, {.bits = 4, .group_size = 4, .by_size = true}), "m.g_idx is missing");
  tensors.pop_back();
  EXPECT_SAYS(find_error(tensors), "m.scales [2, 8] is missing");
  EXPECT_SAYS(find_error(by_hand(), {.bits = 8, .group_size = 4}), "m.qweight is [1, 8]; by bits and group_size");
  EXPECT_SAYS(find_error(by_hand(), {.bits = 4, .group_size = 2}), "m.qzeros is [2, 1]");
  EXPECT_SAYS(find_error(by_hand(), kByHand, 12), "are multiples of 8");
  for (const uint32_t group : {2u, 0xffffffffu}) {
    tensors = by_hand();
    tensors[3].bytes = bytes_of_words({1, 0, 0, 0, group, 1, 0, 0});
    EXPECT_SAYS(find_error(tensors), "m.g_idx gives column 4 the group");
  }
  tensors = by_hand();
  tensors[0].dtype = FileDType::f32;
  EXPECT_SAYS(find_error(tensors), "m.qweight holds F32, and ought to hold I32");
}

TEST(GptqFormat, RefusesConfigsThatSayOtherwise) {
  const Json good{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"sym", false}, {"damp_percent", 0.1}};
  const auto error = [&](const Json& change) {
    Json json = good;
    json.update(change);
    return testing::error_of([&] { read_gptq_format(json, "config.json"); });
  };
  EXPECT_EQ(error(Json::object()), "");
  EXPECT_SAYS(error({{"bits", 3}}), "config.json: \"quantization_config.bits\": 3 is not supported");
  EXPECT_SAYS(error({{"bits", 1 << 30}}), "quantization_config.bits");
  EXPECT_SAYS(error({{"group_size", 0}}), "quantization_config.group_size");
  EXPECT_SAYS(error({{"group_size", -2}}), "quantization_config.group_size");
  EXPECT_SAYS(error({{"checkpoint_format", "marlin"}}), "\"marlin\" is not supported");
  EXPECT_SAYS(error({{"is_marlin_format", true}}), "is_marlin_format");
  EXPECT_SAYS(error({{"pack_dtype", "int16"}}), "pack_dtype");
  EXPECT_SAYS(error({{"dynamic", {{".*", {{"bits", 8}}}}}}), "all alike");
  EXPECT_EQ(error({{"dynamic", {{"-:.*gate", Json::object()}}}}), "");
}

TEST(GptqFormat, IsReadAsItWasWritten) {
  for (const GptqFormat& f : {GptqFormat{}, GptqFormat{.bits = 8, .group_size = 0, .by_size = true},
                              GptqFormat{.bits = 4, .group_size = 32, .zeros_less_one = false}}) {
    const Json json = gptq_to_json(f, {});
    EXPECT_TRUE(is_gptq(json));
    EXPECT_EQ(read_gptq_format(json, "config.json"), f);
    EXPECT_FALSE(json.contains("modules_in_block_to_quantize"));
  }
  EXPECT_EQ(gptq_to_json({}, {"mlp.up"})["modules_in_block_to_quantize"], (Json{{"mlp.up"}}));
}

Json config_in_codes() {
  return {{"model_type", "llama"},
          {"vocab_size", 10},
          {"hidden_size", 8},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"intermediate_size", 8},
          {"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 4}}}};
}

// A model one of whose matrices is in codes, the others in full.
void write_model_in_codes(const TempDir& dir, const Json& config) {
  testing::spill(dir / "config.json", config.dump());
  std::vector<TensorToWrite> files;
  const std::string module = "model.layers.0.self_attn.o_proj";
  for (const HfTensor& t : hf_tensors(parse_hf_config(config_in_codes(), "config.json").spec)) {
    if (t.name == module + ".weight") continue;
    files.push_back({t.name, FileDType::f32, t.shape, std::string(size_t(t.rows * t.cols() * 4), '\0')});
  }
  for (TensorToWrite& t : by_hand()) {
    t.name.replace(0, 1, module);
    files.push_back(t);
  }
  testing::write_safetensors_folder(dir.path(), files);
}

TEST(GptqFormat, AModelMayHaveMatricesInCodes) {
  TempDir dir;
  write_model_in_codes(dir, config_in_codes());
  const HfConfig config = read_hf_config(dir.path());
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_SAYS(config.warnings[0], "weights in codes are read as the numbers that they stand for");
  EXPECT_FALSE(hf_config_of(config, DType::f32).contains("quantization_config")) << "what is written is in full";
  const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
  const HfMatch match = match_hf_tensors(config.spec, folder);
  ASSERT_EQ(match.tensors.size(), hf_tensors(config.spec).size());
  for (const FoundHfTensor& found : match.tensors) {
    EXPECT_EQ(found.codes.has_value(), found.tensor.name.ends_with("o_proj.weight"));
    if (!found.codes) continue;
    std::vector<float> row(8);
    read_hf_rows(found, folder, {7, 0},
                 {.data = row.data(), .dtype = DType::f32, .rows = 1, .cols = 8, .row_stride = 8});
    EXPECT_EQ(row, (std::vector<float>{28, 0, 0.5, 1, 1.5, 48, 2.5, 3}));
  }
}

TEST(GptqFormat, CodesThatTheConfigDoesNotTellOfAreRefused) {
  TempDir dir;
  Json config = config_in_codes();
  config.erase("quantization_config");
  write_model_in_codes(dir, config);
  const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
  const ModelSpec model = read_hf_config(dir.path()).spec;
  EXPECT_SAYS(testing::error_of<FileError>([&] { match_hf_tensors(model, folder); }), "has no quantization_config");
  config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}};
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { parse_hf_config(config, "config.json"); }), "quantization_config");
}

}  // namespace
}  // namespace weft
