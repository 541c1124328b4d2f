#include "weft/gguf/gguf_k_blocks.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "weft/tensor/dtype.h"

namespace weft {
namespace {

float load_f16(const std::byte* from) {
  f16 value;
  std::memcpy(&value, from, sizeof value);
  return float(value);
}
// Returns what is stored: x, rounded.
float store_f16(std::byte* to, float x) {
  const f16 value(x);
  std::memcpy(to, &value, sizeof value);
  return float(value);
}

// The whole number next to x within [low, high], which are small: added to 1.5 * 2^23, a float has no digits behind the
// point. (std::lround takes most of the time of encoding.)
float nearest(float x, float low, float high) {
  constexpr float kNoFraction = 12582912;
  return std::clamp(x, low, high) + kNoFraction - kNoFraction;
}
int rounded(float x, int low, int high) { return int(nearest(x, float(low), float(high))); }
float inverted(float x) { return std::abs(x) < FLT_MIN ? 0.0f : 1 / x; }

// --- Q4_K ---

constexpr int kParts = 8, kPart = 32;  // of Q4_K

// The 6 bits of part i: of parts 0 to 3 in bytes i and i + 4, whose upper 2 bits are the upper 2 of parts 4 to 7; the
// low 4 bits of these are in byte i + 4, the scale's in its low half.
struct Codes {
  int scale, minimum;
};
Codes codes_of(const std::byte* packed, int i) {
  const auto byte = [&](int at) { return int(packed[at]); };
  if (i < 4) return {byte(i) & 63, byte(i + 4) & 63};
  return {(byte(i + 4) & 15) | byte(i - 4) >> 6 << 4, byte(i + 4) >> 4 | byte(i) >> 6 << 4};
}
void set_codes(std::byte* packed, int i, Codes c) {
  if (i < 4) {
    packed[i] |= std::byte(c.scale);
    packed[i + 4] |= std::byte(c.minimum);
    return;
  }
  packed[i + 4] |= std::byte((c.scale & 15) | (c.minimum & 15) << 4);
  packed[i - 4] |= std::byte(c.scale >> 4 << 6);
  packed[i] |= std::byte(c.minimum >> 4 << 6);
}

// x is near scale q - minimum, with q from 0 to 15; both are at least 0.
struct Line {
  float scale = 0, minimum = 0;
};

// The codes of x for a step of 1 / inverse, and the line through them with the least squares.
Line fitted(const float* x, float low, float inverse) {
  float q1 = 0, q2 = 0, x1 = 0, qx = 0;
  for (int i = 0; i < kPart; ++i) {
    const float q = nearest((x[i] - low) * inverse, 0, 15);
    q1 += q, q2 += q * q, x1 += x[i], qx += q * x[i];
  }
  const float n = kPart, determinant = n * q2 - q1 * q1;
  if (determinant <= 0) return {};
  const Line line{(n * qx - q1 * x1) / determinant, (q1 * qx - q2 * x1) / determinant};
  return line.minimum >= 0 ? line : Line{qx / q2, 0};
}

float squared_error(const float* x, const Line& line) {
  float sum = 0;
  const float inverse = inverted(line.scale);
  for (int i = 0; i < kPart; ++i) {
    const float q = nearest((x[i] + line.minimum) * inverse, 0, 15);
    const float error = line.scale * q - line.minimum - x[i];
    sum += error * error;
  }
  return sum;
}

Line best_line(const float* x) {
  const float low = std::min(0.0f, *std::min_element(x, x + kPart)), high = *std::max_element(x, x + kPart);
  if (high - low < FLT_MIN) return {0, -low};
  Line best{(high - low) / 15, -low};
  float least = squared_error(x, best);
  for (int step = -10; step <= 10; ++step) {
    const Line line = fitted(x, low, (15 + 0.1f * float(step)) / (high - low));
    if (line.scale <= 0) continue;
    const float error = squared_error(x, line);
    if (error < least) least = error, best = line;
  }
  return best;
}

// --- Q6_K ---

constexpr int kSixParts = 16, kSixPart = 16;  // of Q6_K

// The scale of a part, with the sign by which its number of the largest magnitude has the code -32.
float best_scale(const float* x) {
  const float largest = *std::max_element(x, x + kSixPart, [](float a, float b) { return std::abs(a) < std::abs(b); });
  if (std::abs(largest) < FLT_MIN) return 0;
  float best = 0, least = INFINITY;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = -(32 + 0.1f * float(step)) / largest;
    float q2 = 0, qx = 0, x2 = 0;
    for (int i = 0; i < kSixPart; ++i) {
      const float q = nearest(x[i] * inverse, -32, 31);
      q2 += q * q, qx += q * x[i], x2 += x[i] * x[i];
    }
    if (const float error = x2 - qx * qx / q2; error < least) least = error, best = qx / q2;
  }
  return best;
}

// Where the bits of a code are: byte `low` of the low bits, its half, byte `high` of the high bits, their shift. Each
// half of the block is four runs of 32: runs 0 and 2 share low bytes, and so do 1 and 3; all four share high bytes.
struct SixBits {
  int low, low_shift, high, high_shift;
};
SixBits bits_of_code(int i) {
  const int half = i / 128, run = i % 128 / 32, at = i % 32;
  return {half * 64 + run % 2 * 32 + at, run / 2 * 4, 128 + half * 32 + at, run * 2};
}
constexpr int kScalesAt = 192, kScaleAt = 208;  // bytes

}  // namespace

void decode_q4_k(const std::byte* from, float* x) {
  const float d = load_f16(from), dmin = load_f16(from + 2);
  for (int p = 0; p < kParts; ++p) {
    const Codes c = codes_of(from + 4, p);
    const std::byte* codes = from + 16 + p / 2 * 32;  // of two parts: one in the low halves, one in the high
    for (int i = 0; i < kPart; ++i)
      x[p * kPart + i] = d * float(c.scale) * float(int(codes[i]) >> p % 2 * 4 & 15) - dmin * float(c.minimum);
  }
}

void encode_q4_k(const float* x, std::byte* to) {
  Line lines[kParts];
  float scale = 0, minimum = 0;  // the largest of a part
  for (int p = 0; p < kParts; ++p) {
    lines[p] = best_line(x + p * kPart);
    scale = std::max(scale, lines[p].scale);
    minimum = std::max(minimum, lines[p].minimum);
  }
  std::fill(to, to + 144, std::byte(0));
  const float d = store_f16(to, scale / 63), dmin = store_f16(to + 2, minimum / 63);
  for (int p = 0; p < kParts; ++p) {
    const Codes c{rounded(lines[p].scale * inverted(d), 0, 63), rounded(lines[p].minimum * inverted(dmin), 0, 63)};
    set_codes(to + 4, p, c);
    const float inverse = inverted(d * float(c.scale)), least = dmin * float(c.minimum);
    for (int i = 0; i < kPart; ++i) {
      const int q = rounded((x[p * kPart + i] + least) * inverse, 0, 15);
      to[16 + p / 2 * 32 + i] |= std::byte(q << p % 2 * 4);
    }
  }
}

void decode_q6_k(const std::byte* from, float* x) {
  const float d = load_f16(from + kScaleAt);
  for (int i = 0; i < kSixParts * kSixPart; ++i) {
    const SixBits at = bits_of_code(i);
    const int code = (int(from[at.low]) >> at.low_shift & 15) | (int(from[at.high]) >> at.high_shift & 3) << 4;
    x[i] = d * float(int8_t(from[kScalesAt + i / kSixPart])) * float(code - 32);
  }
}

void encode_q6_k(const float* x, std::byte* to) {
  float scales[kSixParts];
  for (int p = 0; p < kSixParts; ++p) scales[p] = best_scale(x + p * kSixPart);
  const float largest =
      *std::max_element(scales, scales + kSixParts, [](float a, float b) { return std::abs(a) < std::abs(b); });
  std::fill(to, to + 210, std::byte(0));
  const float d = store_f16(to + kScaleAt, largest / -128);
  for (int p = 0; p < kSixParts; ++p) {
    const int scale = rounded(scales[p] * inverted(d), -128, 127);
    to[kScalesAt + p] = std::byte(int8_t(scale));
    const float inverse = inverted(d * float(scale));
    for (int i = p * kSixPart; i < (p + 1) * kSixPart; ++i) {
      const int code = rounded(x[i] * inverse, -32, 31) + 32;
      const SixBits at = bits_of_code(i);
      to[at.low] |= std::byte((code & 15) << at.low_shift);
      to[at.high] |= std::byte(code >> 4 << at.high_shift);
    }
  }
}

}  // namespace weft
