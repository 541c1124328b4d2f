// Codes in 8 bits: the levels, and which of them a number becomes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "golden_folders.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/ops/cpu/blockwise.h"
#include "weft/ops/ref/kernels.h"

namespace weft {
namespace {

constexpr Levels kBoth[] = {Levels::with_sign, Levels::without_sign};

TEST(Levels, AreAscendingWithZeroAndOne) {
  for (const Levels which : kBoth) {
    const LevelTable& levels = levels_of(which);
    for (size_t i = 0; i + 1 < levels.size(); ++i) EXPECT_LT(levels[i], levels[i + 1]) << i;
    EXPECT_EQ(levels.back(), 1);
    EXPECT_EQ(levels[which == Levels::with_sign ? 127 : 0], 0);
  }
  EXPECT_NEAR(levels_of(Levels::with_sign)[0], -(1 - 0.9 / 128), 1e-7);
  EXPECT_NEAR(levels_of(Levels::with_sign)[128], 0.55e-6, 1e-13);
  EXPECT_NEAR(levels_of(Levels::without_sign)[1], 0.325e-6, 1e-13);
}

// Half way between two levels, and the floats on both sides of it; every level; numbers in between.
TEST(CodeFinder, FindsTheNearestLevelAndTheLowerOfTwo) {
  for (const Levels which : kBoth) {
    const LevelTable& levels = levels_of(which);
    const cpu::CodeFinder& finder = cpu::code_finder(which);
    for (int i = 0; i < kCodes; ++i) EXPECT_EQ(finder.code_of(levels[size_t(i)]), i);
    for (int i = 0; i + 1 < kCodes; ++i) {
      const float middle = (levels[size_t(i)] + levels[size_t(i) + 1]) / 2;
      EXPECT_EQ(finder.code_of(middle), i);
      EXPECT_EQ(finder.code_of(std::nextafter(middle, 2.0f)), i + 1);
      EXPECT_EQ(finder.code_of(std::nextafter(middle, -2.0f)), i);
    }
    for (int i = 0; i <= 200000; ++i) {
      const float x = (which == Levels::with_sign && i % 2 == 1 ? -1.0f : 1.0f) * std::pow(float(i) / 200000, 4.0f);
      int code = 0;
      while (code + 1 < kCodes && (levels[size_t(code)] + levels[size_t(code) + 1]) / 2 < x) ++code;
      ASSERT_EQ(finder.code_of(x), code) << x;
    }
  }
}

TEST(CodeBlocks, AreOfTheWholeTensor) {
  // Columns [4, 6) of a matrix of 10 columns, from its second row and column on: elements 15, 24, 25, ...
  const CodeBlocks columns{.origin = 4, .cols = 2, .stride = 10, .first = 3};
  EXPECT_EQ(columns.index(0), 15);
  EXPECT_EQ(columns.index(1), 24);
  EXPECT_EQ(columns.num_blocks(60), 2);  // the last of them is element 310
  std::vector<int> seen(60, -1);
  for (int b = 0; b < 2; ++b)
    columns.for_runs_of(b, 60, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        EXPECT_EQ(seen[size_t(i)], -1);
        EXPECT_EQ(columns.index(i) / kCodeBlock, b);
        seen[size_t(i)] = b;
      }
    });
  for (const int b : seen) EXPECT_NE(b, -1);
  EXPECT_EQ(columns.num_blocks(0), 0);
}

std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes(*file.find(name));
  std::vector<float> all(bytes.size() / sizeof(float));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// The casts of another implementation: each file of them in the golden folders.
std::vector<std::filesystem::path> golden_casts() { return testing::golden_files("blockwise8.safetensors"); }
constexpr const char* kNoCasts = "the golden folders have no blockwise8.safetensors";

void expect_golden_codes(const SafetensorsFile& file) {
  const std::vector<float> x = floats(file, "x");
  for (const Levels which : kBoth) {
    const std::string name = which == Levels::with_sign ? "signed" : "unsigned";
    const LevelTable& levels = levels_of(which);
    const std::vector<float> map = floats(file, "map_" + name), absmax = floats(file, name + ".absmax"),
                             dequantised = floats(file, name + ".dequantised");
    for (size_t i = 0; i < levels.size(); ++i) EXPECT_NEAR(levels[i], map[i], 1e-6 * std::abs(map[i])) << i;
    const auto codes = file.bytes(*file.find(name + ".codes"));
    ASSERT_EQ(codes.size(), x.size());
    ASSERT_EQ(absmax.size(), (x.size() + size_t(kCodeBlock) - 1) / size_t(kCodeBlock));
    for (size_t b = 0; b < absmax.size(); ++b) {
      const size_t begin = b * size_t(kCodeBlock), end = std::min(x.size(), begin + size_t(kCodeBlock));
      float most = 0;
      for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[i]));
      EXPECT_EQ(most, absmax[b]);
      const float scale = most > 0 ? most : 1;
      for (size_t i = begin; i < end; ++i) {
        const float value = which == Levels::with_sign ? x[i] : std::abs(x[i]);
        const auto code = uint8_t(codes[i]);
        EXPECT_EQ(cpu::code_finder(which).code_of(value / scale), code) << i;
        EXPECT_EQ(ref::nearest_code(which, double(value) / double(scale)), code) << i;
        EXPECT_NEAR(levels[code] * most, dequantised[i], 1e-6 * std::abs(dequantised[i])) << i;
      }
    }
  }
}

// Another implementation's levels, and its codes, to the byte.
TEST(Levels, AndCodesAreThoseOfTheGoldenCases) {
  const std::vector<std::filesystem::path> files = golden_casts();
  if (files.empty()) GTEST_SKIP() << kNoCasts;
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    expect_golden_codes(SafetensorsFile::open(file));
  }
}

// The vectorised op on the numbers of a file: the first moment without memory is the gradient.
void expect_golden_moments(const SafetensorsFile& file) {
  std::vector<float> x = floats(file, "x"), w(x.size(), 0.0f);
  std::vector<uint8_t> m(x.size(), 127), v(x.size(), 0);
  const auto n = int64_t(x.size());
  const CodeBlocks at{.cols = n, .stride = n};
  const auto blocks = size_t(at.num_blocks(n));
  std::vector<float> absmax(blocks, 0.0f), v_absmax(blocks, 0.0f), most(blocks), v_most(blocks);
  const auto numbers = [](std::vector<float>& of) { return Tensor(of.data(), DType::f32, {int64_t(of.size())}); };
  const auto codes = [](std::vector<uint8_t>& of) { return Tensor(of.data(), DType::u8, {int64_t(of.size())}); };
  cpu::adamw8_max({.grad = numbers(x),
                   .m = codes(m),
                   .v = codes(v),
                   .m_absmax = numbers(absmax),
                   .v_absmax = numbers(v_absmax),
                   .m_max = numbers(most),
                   .v_max = numbers(v_most),
                   .at = at,
                   .beta1 = 0},
                  {0, int64_t(blocks)});
  cpu::adamw8({.w = numbers(w),
               .grad = numbers(x),
               .m = codes(m),
               .v = codes(v),
               .m_absmax = numbers(absmax),
               .v_absmax = numbers(v_absmax),
               .m_max = numbers(most),
               .v_max = numbers(v_most),
               .at = at,
               .beta1 = 0},
              {0, int64_t(blocks)});
  EXPECT_EQ(absmax, floats(file, "signed.absmax"));
  EXPECT_EQ(std::memcmp(m.data(), file.bytes(*file.find("signed.codes")).data(), m.size()), 0);
}

TEST(AdamW8, WritesTheGoldenCodesOfItsGradient) {
  const std::vector<std::filesystem::path> files = golden_casts();
  if (files.empty()) GTEST_SKIP() << kNoCasts;
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    expect_golden_moments(SafetensorsFile::open(file));
  }
}

}  // namespace
}  // namespace weft
