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

// YaRN's share of slowing down, of the pair i of width / 2.
class YarnRamp {
 public:
  YarnRamp(const RopeSpec& s, int64_t width) {
    // The pair that turns so many times over the original length.
    const auto pair_of = [&](double turns) {
      const double length = double(s.original_positions) / (2 * std::numbers::pi * turns);
      return double(width) * std::log(length) / (2 * std::log(s.theta));
    };
    const double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
    begin_ = std::max(s.truncate ? std::floor(low) : low, 0.0);
    end_ = std::min(s.truncate ? std::ceil(high) : high, double(width - 1));
    if (end_ == begin_) end_ += 0.001;  // as the published code does: never divided by 0
  }
  double operator()(double i) const { return std::clamp((i - begin_) / (end_ - begin_), 0.0, 1.0); }

 private:
  double begin_, end_;
};

double scaled(const RopeSpec& s, double frequency, size_t i, int64_t width, int64_t positions) {
  switch (s.scaling) {
    case RopeSpec::Scaling::none:
      return frequency;
    case RopeSpec::Scaling::linear:
      return frequency / s.factor;
    case RopeSpec::Scaling::llama3:
      return scaled_llama3(s, frequency);
    case RopeSpec::Scaling::yarn: {
      const double slowed = YarnRamp(s, width)(double(i));
      return frequency * (1 - slowed) + frequency / s.factor * slowed;
    }
    case RopeSpec::Scaling::longrope:
      return frequency / (positions > s.original_positions ? s.long_factors : s.short_factors)[i];
  }
  return frequency;
}

template <class T>
void fill(const std::vector<double>& frequencies, double magnitude, const Tensor& table, int64_t first_position) {
  const int64_t half = int64_t(frequencies.size());
  for (int64_t position = 0; position < table.rows(); ++position) {
    T* row = table.as<T>() + position * table.row_stride;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = double(first_position + position) * frequencies[size_t(i)];
      row[i] = T(magnitude * std::cos(angle));
      row[half + i] = T(magnitude * std::sin(angle));
    }
  }
}

}  // namespace

std::vector<double> rope_frequencies(const RopeSpec& spec, int64_t width, int64_t positions) {
  std::vector<double> frequencies(size_t(width / 2));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = scaled(spec, std::pow(spec.theta, -2.0 * double(i) / double(width)), i, width, positions);
  return frequencies;
}

void fill_rope_table(const RopeSpec& spec, const Tensor& table, const Memory& memory) {
  if (table.data == nullptr) return;
  const auto frequencies = rope_frequencies(spec, table.cols(), table.rows());
  write_parts(memory, table, [&](const Tensor& part, int64_t first) {
    if (part.dtype == DType::f64)
      fill<double>(frequencies, spec.magnitude, part, first);
    else
      fill<float>(frequencies, spec.magnitude, part, first);
  });
}

}  // namespace weft
