#include "weft/checkpoint/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr FileDType kFloats[] = {FileDType::f64, FileDType::f32, FileDType::bf16, FileDType::f16};

// The [rows, cols] matrix of 10 i + j, small enough to be exact in every type.
std::vector<double> numbers(int64_t rows, int64_t cols) {
  std::vector<double> m;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) m.push_back(double(10 * i + j));
  return m;
}

MatrixIn view(const std::vector<double>& m, int64_t rows, int64_t cols) {
  return {m.data(), DType::f64, rows, cols, cols};
}

std::vector<std::byte> streamed(const MatrixIn& from, FileDType as, bool transposed) {
  std::vector<std::byte> bytes;
  stream_matrix(from, as, transposed,
                [&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
  return bytes;
}

TEST(Convert, EveryTypeOfFileReadsIntoEveryTypeOfMemory) {
  const std::vector<double> m = numbers(4, 3);
  for (const FileDType file : kFloats) {
    std::vector<std::byte> bytes = streamed(view(m, 4, 3), file, false);
    EXPECT_EQ(bytes.size(), size_t(12 * bits_of(file) / 8));
    bytes.insert(bytes.begin(), std::byte{0});  // at an odd address
    const FileMatrix from{std::span(bytes).subspan(1), file, 4, 3};
    std::vector<double> as_double(12);
    std::vector<float> as_float(12);
    std::vector<bf16> as_bf16(12);
    read_matrix(from, {}, {as_double.data(), DType::f64, 4, 3, 3});
    read_matrix(from, {}, {as_float.data(), DType::f32, 4, 3, 3});
    read_matrix(from, {}, {as_bf16.data(), DType::bf16, 4, 3, 3});
    EXPECT_EQ(as_double, m);
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(as_float[i], float(m[i]));
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(float(as_bf16[i]), float(m[i]));
  }
}

TEST(Convert, ReadsABlockIntoRowsWithGaps) {
  const std::vector<double> m = numbers(4, 3);
  const auto bytes = streamed(view(m, 4, 3), FileDType::f32, false);
  std::vector<float> out(8, -1);
  read_matrix({bytes, FileDType::f32, 4, 3}, {1, 1}, {out.data(), DType::f32, 2, 2, 4});
  EXPECT_EQ(out, (std::vector<float>{11, 12, -1, -1, 21, 22, -1, -1}));
}

TEST(Convert, TransposesInBothDirections) {
  const int64_t rows = 67, cols = 41;  // beyond one tile, and not in whole ones
  const std::vector<double> m = numbers(rows, cols);
  for (const FileDType file : {FileDType::f64, FileDType::f32}) {
    const auto bytes = streamed(view(m, rows, cols), file, true);  // [cols, rows] in the file
    std::vector<double> out(m.size());
    read_transposed({bytes, file, cols, rows}, {}, {out.data(), DType::f64, rows, cols, cols});
    EXPECT_EQ(out, m);
    std::vector<double> part(6);
    read_transposed({bytes, file, cols, rows}, {5, 60}, {part.data(), DType::f64, 3, 2, 2});
    EXPECT_EQ(part, (std::vector<double>{605, 606, 615, 616, 625, 626}));
  }
}

TEST(Convert, StreamsMatricesLargerThanItsBuffer) {
  const int64_t rows = 300, cols = 1000;
  const std::vector<double> m = numbers(rows, cols);
  const auto bytes = streamed(view(m, rows, cols), FileDType::f64, false);
  ASSERT_EQ(bytes.size(), m.size() * 8);
  EXPECT_EQ(std::memcmp(bytes.data(), m.data(), bytes.size()), 0);
  EXPECT_EQ(streamed(view(m, rows, cols), FileDType::f64, true).size(), bytes.size());
}

TEST(Convert, RoundsToNearestEven) {
  const std::vector<double> m = {1 + 0x1p-9, 1 + 0x3p-9, 65520, 0x1p-25, -0.0};
  const auto as_bf16 = streamed(view(m, 1, 5), FileDType::bf16, false);
  const auto as_f16 = streamed(view(m, 1, 5), FileDType::f16, false);
  std::vector<double> back(5);
  read_matrix({as_bf16, FileDType::bf16, 1, 5}, {}, {back.data(), DType::f64, 1, 5, 5});
  EXPECT_EQ(back[0], 1);
  EXPECT_EQ(back[1], 1 + 0x1p-7);
  read_matrix({as_f16, FileDType::f16, 1, 5}, {}, {back.data(), DType::f64, 1, 5, 5});
  EXPECT_TRUE(std::isinf(back[2]));
  EXPECT_EQ(back[3], 0);
  EXPECT_TRUE(std::signbit(back[4]));
}

TEST(Convert, EmptyMatricesAreFine) {
  const std::vector<double> none;
  EXPECT_TRUE(streamed(view(none, 0, 3), FileDType::f32, false).empty());
  EXPECT_TRUE(streamed(view(none, 3, 0), FileDType::f32, true).empty());
}

TEST(Convert, RefusesBlocksOutsideAndTypesItCannotConvert) {
  const std::vector<std::byte> bytes(24);
  float out[12];
  const FileMatrix from{bytes, FileDType::f32, 2, 3};
  EXPECT_THROW(read_matrix(from, {1, 0}, {out, DType::f32, 2, 3, 3}), CheckFailure);
  EXPECT_THROW(read_matrix(from, {0, -1}, {out, DType::f32, 1, 1, 1}), CheckFailure);
  EXPECT_THROW(read_transposed(from, {}, {out, DType::f32, 2, 3, 3}), CheckFailure);
  EXPECT_THROW(read_matrix({bytes, FileDType::f32, 2, 2}, {}, {out, DType::f32, 1, 1, 1}), CheckFailure);
  EXPECT_THROW(read_matrix({bytes, FileDType::i32, 2, 3}, {}, {out, DType::f32, 1, 1, 1}), CheckFailure);
  EXPECT_THROW(read_matrix(from, {}, {out, DType::i32, 1, 1, 1}), CheckFailure);
}

}  // namespace
}  // namespace weft
