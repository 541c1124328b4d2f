#include "weft/models/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/device/host_parts.h"

namespace weft {
namespace {

// Llama 3.1: long wavelengths are slowed by `factor`, short ones kept, those between blended linearly in frequency.
double scaled_llama3(const RopeSpec& s, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = double(s.original_positions);
  if (wavelength > original / s.low_freq_factor) return frequency / s.factor;
  if (wavelength < original / s.high_freq_factor) return frequency;
  const double smooth = (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

template <class T>
void fill(const std::vector<double>& frequencies, const Tensor& table, int64_t first_position) {
  const int64_t half = int64_t(frequencies.size());
  for (int64_t position = 0; position < table.rows(); ++position) {
    T* row = table.as<T>() + position * table.row_stride;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = double(first_position + position) * frequencies[size_t(i)];
      row[i] = T(std::cos(angle));
      row[half + i] = T(std::sin(angle));
    }
  }
}

}  // namespace

std::vector<double> rope_frequencies(const RopeSpec& spec, int64_t head_dim) {
  std::vector<double> frequencies(size_t(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double f = std::pow(spec.theta, -2.0 * double(i) / double(head_dim));
    if (spec.scaling == RopeSpec::Scaling::linear) f /= spec.factor;
    if (spec.scaling == RopeSpec::Scaling::llama3) f = scaled_llama3(spec, f);
    frequencies[i] = f;
  }
  return frequencies;
}

void fill_rope_table(const RopeSpec& spec, const Tensor& table, const Memory& memory) {
  if (table.data == nullptr) return;
  const auto frequencies = rope_frequencies(spec, table.cols());
  write_parts(memory, table, [&](const Tensor& part, int64_t first) {
    if (part.dtype == DType::f64)
      fill<double>(frequencies, part, first);
    else
      fill<float>(frequencies, part, first);
  });
}

}  // namespace weft
