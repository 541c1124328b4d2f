#include "weft/page/thinned_curve.h"

#include <algorithm>
#include <cmath>

namespace weft {

void ThinnedCurve::Bucket::take(int64_t step, double value) {
  if (!std::isfinite(value)) return;
  if (is_empty() || value < low) low = value, low_step = step;
  if (high != high || value > high) high = value, high_step = step;
}

void ThinnedCurve::Bucket::take(const Bucket& later) {
  if (later.is_empty()) return;
  take(later.low_step, later.low);
  take(later.high_step, later.high);
}

void ThinnedCurve::put_together() {
  size_t kept = 0;
  for (size_t i = 0; i < buckets_.size(); i += 2) {
    Bucket both = buckets_[i];
    if (i + 1 < buckets_.size()) both.take(buckets_[i + 1]);
    buckets_[kept++] = both;
  }
  buckets_.resize(kept);
  width_ *= 2;
}

void ThinnedCurve::add(int64_t step, double value) {
  if (buckets_.empty() || in_last_ == width_) {
    if (buckets_.size() == most_buckets_) put_together();  // all are full, and in pairs
    buckets_.push_back({.first = step});
    in_last_ = 0;
  }
  buckets_.back().take(step, value);
  ++in_last_;
  ++num_points_;
  last_ = {step, value};
}

size_t ThinnedCurve::bucket_of(int64_t step) const {
  const auto after =
      std::upper_bound(buckets_.begin(), buckets_.end(), step, [](int64_t s, const Bucket& b) { return s < b.first; });
  return after == buckets_.begin() ? 0 : size_t(after - buckets_.begin()) - 1;
}

size_t ThinnedCurve::buckets_in(int64_t from, int64_t to) const {
  if (buckets_.empty() || from > to || to < buckets_.front().first || from > last_.step) return 0;
  return bucket_of(to) - bucket_of(from) + 1;
}

CurveWindow ThinnedCurve::window(int64_t from, int64_t to, size_t most) const {
  CurveWindow out;
  const size_t count = buckets_in(from, to);
  if (count == 0) return out;
  const size_t begin = bucket_of(from);
  const auto put = [&](int64_t step, double value) {
    if (step >= from && step <= to) out.points.push_back({step, value});
  };
  if (width_ == 1 && count <= most) {
    for (size_t i = begin; i < begin + count; ++i) {
      const Bucket& b = buckets_[i];
      put(b.is_empty() ? b.first : b.low_step, b.low);
    }
    return out;
  }
  const size_t stretches = std::min(count, most / 2);
  for (size_t s = 0; s < stretches; ++s) {
    const size_t first = begin + count * s / stretches, end = begin + count * (s + 1) / stretches;
    Bucket all = buckets_[first];
    for (size_t i = first + 1; i < end; ++i) all.take(buckets_[i]);
    if (all.is_empty()) {
      put(all.first, std::nan(""));
      continue;
    }
    put(std::min(all.low_step, all.high_step), all.low_step <= all.high_step ? all.low : all.high);
    if (all.low_step != all.high_step)
      put(std::max(all.low_step, all.high_step), all.low_step <= all.high_step ? all.high : all.low);
  }
  out.thinned = true;
  return out;
}

}  // namespace weft
