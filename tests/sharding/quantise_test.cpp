// Frozen matrices in codes: those of another implementation, and the same on any cut.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "golden_folders.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/sharding/quantise.h"

namespace weft {
namespace {

constexpr WeightCodes kBothCodes[] = {WeightCodes::nf4, WeightCodes::int8};

// A part of a matrix [rows, cols], in codes.
struct Coded {
  CodedPart part;
  std::vector<std::byte> bytes;

  Coded(WeightCodes as, const std::vector<float>& values, int64_t of_row, weft::Run rows, weft::Run cols) {
    const int64_t num_rows = int64_t(values.size()) / of_row;
    const ParamSpec weight{.name = "w", .shape = {num_rows, of_row}, .place = {}, .codes = as};
    const std::vector<HeldPart> parts{
        {.rows = rows, .cols = cols, .local_row = 0, .held = Spmd::None, .part_rows = {0, num_rows}}};
    part = coded_parts(weight, parts, DType::f64)[0];
    bytes.resize(size_t(coded_bytes(weight, parts, DType::f64)), std::byte{0xee});
    const auto read = [&](weft::Run some, float* to) {
      std::copy_n(values.data() + some.first * of_row, some.count * of_row, to);
    };
    const auto put = [&](int64_t first, std::span<const std::byte> from) {
      std::copy(from.begin(), from.end(), bytes.begin() + first);
    };
    quantise({.name = "w", .rows = num_rows, .cols = of_row, .read = read}, part, DType::f64, 2,
             {.wanted = {0, int64_t(bytes.size())}, .put = put});
  }
  Tensor all() { return Tensor(bytes.data(), DType::u8, {int64_t(bytes.size())}); }
  uint8_t code(int64_t row, int64_t col) {
    const CodedRectangle& at = part.at;
    const auto byte = [&](int64_t i) { return uint8_t(bytes[size_t(part.codes.first + row * at.codes_of_row() + i)]); };
    if (at.as == WeightCodes::int8) return byte(col);
    return col % 2 == 0 ? byte(col / 2) >> 4 : byte(col / 2) & 15;
  }
  double scale(int64_t i) { return part.scales_in(all(), DType::f64).as<double>()[i]; }
  std::vector<double> numbers() {
    std::vector<double> out(size_t(part.at.rows * part.at.cols));
    RefBackend(1).run(Dequantise{.codes = part.codes_in(all()),
                                 .maxima = part.maxima_in(all()),
                                 .scales = part.scales_in(all(), DType::f64),
                                 .out = Tensor(out.data(), DType::f64, {part.at.rows, part.at.cols}),
                                 .at = part.at});
    return out;
  }
};

std::vector<float> drawn(int64_t n) {
  std::mt19937 gen(4);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) x = normal(gen);
  return values;
}

TEST(Quantise, TakesTheNearestLevelOfABlockAndTheLowerOfTwo) {
  std::vector<float> values(64, 0);
  for (size_t i = 0; i < 16; ++i) values[i] = 2 * kNf4Levels[i];
  values[16] = kNf4Levels[7] + kNf4Levels[8];  // half way, times 2
  values[17] = std::nextafter(values[16], 1.0f);
  Coded coded(WeightCodes::nf4, values, 64, {0, 1}, {0, 64});
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(coded.code(0, i), i);
  EXPECT_EQ(coded.code(0, 16), 7);
  EXPECT_EQ(coded.code(0, 17), 8);
  EXPECT_EQ(coded.scale(0), 2) << "the mean of one maximum";
  EXPECT_EQ(coded.scale(1), 0) << "which is not apart from it";
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(coded.numbers()[i], double(values[i]));
}

TEST(Quantise, RoundsARowToItsScale) {
  Coded coded(WeightCodes::int8, {1, -0.5f, 0.25f, 0, 0, 0, -4, 4, 0.01f}, 3, {0, 3}, {0, 3});
  EXPECT_EQ(coded.scale(0), double(1.0f / 127));
  EXPECT_EQ(coded.code(0, 0), 127);
  EXPECT_EQ(int8_t(coded.code(0, 1)), -64);  // -63.5, to even
  EXPECT_EQ(coded.code(0, 2), 32);
  EXPECT_EQ(coded.scale(1), 0);
  EXPECT_EQ(int8_t(coded.code(2, 0)), -127);
  EXPECT_EQ(coded.code(2, 2), 0);
  Coded tiny(WeightCodes::int8, {1e-38f, 0, -1e-38f}, 3, {0, 1}, {0, 3});
  EXPECT_EQ(tiny.code(0, 0), 127);
  EXPECT_EQ(tiny.code(0, 1), 0);
  EXPECT_EQ(int8_t(tiny.code(0, 2)), -127);
}

// Ranks cut rows or columns where they like, odd ones too: blocks are of the whole matrix.
TEST(Quantise, AnyCutHasTheNumbersOfTheWhole) {
  const int64_t rows = 53, cols = 341;  // more maxima than one block of them
  const std::vector<float> values = drawn(rows * cols);
  for (const WeightCodes as : kBothCodes) {
    const std::vector<double> whole = Coded(as, values, cols, {0, rows}, {0, cols}).numbers();
    double far = 0;
    for (size_t i = 0; i < whole.size(); ++i) far = std::max(far, std::abs(whole[i] - double(values[i])));
    EXPECT_LT(far, as == WeightCodes::nf4 ? 0.015 : 0.0004);
    EXPECT_GT(far, 0);
    for (const auto& [row, col] :
         {std::pair(weft::Run{0, 17}, weft::Run{0, cols}), std::pair(weft::Run{17, 36}, weft::Run{0, cols}),
          std::pair(weft::Run{0, rows}, weft::Run{0, 113}), std::pair(weft::Run{0, rows}, weft::Run{113, 1}),
          std::pair(weft::Run{0, rows}, weft::Run{114, 227}), std::pair(weft::Run{5, 9}, weft::Run{64, 64})}) {
      Coded part(as, values, cols, row, col);
      const std::vector<double> here = part.numbers();
      for (int64_t i = 0; i < row.count; ++i)
        for (int64_t j = 0; j < col.count; ++j)
          ASSERT_EQ(here[size_t(i * col.count + j)], whole[size_t((row.first + i) * cols + col.first + j)])
              << row.first << " " << col.first << ": " << i << " " << j;
    }
  }
}

TEST(Quantise, NumbersOfAMergedModelAreThoseOfARun) {
  const std::vector<float> values = drawn(30 * 67);
  for (const WeightCodes as : kBothCodes) {
    std::vector<float> rounded = values;
    round_to_codes(as, "w", 67, rounded, 2);
    const std::vector<double> whole = Coded(as, values, 67, {0, 30}, {0, 67}).numbers();
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(rounded[i], whole[i], 1e-8) << i;
  }
}

TEST(Quantise, ANumberWithoutACodeIsNamed) {
  std::vector<float> values = drawn(20 * 30);
  values[7 * 30 + 4] = NAN;
  for (const WeightCodes as : kBothCodes)
    EXPECT_SAYS(testing::error_of<FileError>([&] { Coded(as, values, 30, {0, 20}, {0, 30}); }), "w: row 7, column 4");
}

// The matrices in codes of a case, to the byte.
void expect_golden_codes(const std::filesystem::path& quantised) {
  const SafetensorsFile file = SafetensorsFile::open(quantised),
                        model = SafetensorsFile::open(quantised.parent_path() / "model.safetensors");
  const auto floats = [](const SafetensorsFile& of, const SafetensorsEntry& entry) {
    const auto bytes = of.bytes(entry);
    std::vector<float> all(bytes.size() / sizeof(float));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  };
  int matrices = 0;
  for (const SafetensorsEntry& entry : model.tensors()) {
    const SafetensorsEntry* codes = file.find(entry.name + ".codes");
    if (codes == nullptr) continue;
    ++matrices;
    const auto of = [&](const char* what) { return floats(file, *file.find(entry.name + what)); };
    const int64_t rows = entry.shape[0], cols = entry.shape[1];
    Coded coded(WeightCodes::nf4, floats(model, entry), cols, {0, rows}, {0, cols});
    const auto expected = file.bytes(*codes);
    for (int64_t i = 0; i < rows * cols; ++i)
      ASSERT_EQ(coded.code(i / cols, i % cols), uint8_t(expected[size_t(i)])) << entry.name << " " << i;
    const auto maxima = file.bytes(*file.find(entry.name + ".absmax_codes"));
    ASSERT_EQ(coded.part.maxima.count, int64_t(maxima.size()));
    EXPECT_EQ(std::memcmp(coded.bytes.data() + coded.part.maxima.first, maxima.data(), maxima.size()), 0);
    EXPECT_NEAR(coded.scale(0), of(".absmax_offset")[0], 1e-6 * coded.scale(0));
    EXPECT_NEAR(coded.scale(1), of(".absmax_absmax")[0], 1e-6 * coded.scale(1));
    if (file.find(entry.name + ".dequantised") == nullptr) continue;
    const std::vector<float> numbers = of(".dequantised");
    const std::vector<double> here = coded.numbers();
    for (size_t i = 0; i < numbers.size(); ++i)
      ASSERT_NEAR(here[i], numbers[i], 1e-6 * std::abs(numbers[i])) << entry.name << " " << i;
  }
  const auto is_of_codes = [](const SafetensorsEntry& entry) { return entry.name.ends_with(".codes"); };
  EXPECT_EQ(matrices, std::count_if(file.tensors().begin(), file.tensors().end(), is_of_codes));
  EXPECT_GT(matrices, 0);
}

TEST(Quantise, CodesAreThoseOfTheGoldenCases) {
  const std::vector<std::filesystem::path> files = testing::golden_files("quantised.safetensors");
  if (files.empty()) GTEST_SKIP() << "the golden folders have no quantised.safetensors";
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    expect_golden_codes(file);
  }
}

}  // namespace
}  // namespace weft
