#include "weft/step/head_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft {
namespace {

constexpr int64_t kBytesAtOnce = int64_t{64} << 20;

template <class T>
void find_top_of(const T* x, int64_t classes, double temperature, const LargestOfToken& to) {
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < classes; ++j) most = std::max(most, double(x[j]));
  for (int64_t j = 0; j < classes; ++j) sum += std::exp((double(x[j]) - most) / temperature);
  to.lse = float(most / temperature + std::log(sum));
  std::iota(to.ids.begin(), to.ids.end(), 0);
  if (!std::isfinite(sum)) {
    std::fill(to.logits.begin(), to.logits.end(), std::numeric_limits<float>::quiet_NaN());
    to.lse = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  // A heap whose front is the least of those that are kept.
  const auto before = [&](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; };
  std::make_heap(to.ids.begin(), to.ids.end(), before);
  for (auto j = int32_t(to.ids.size()); j < classes; ++j) {
    if (!before(j, to.ids.front())) continue;
    std::pop_heap(to.ids.begin(), to.ids.end(), before);
    to.ids.back() = j;
    std::push_heap(to.ids.begin(), to.ids.end(), before);
  }
  std::sort(to.ids.begin(), to.ids.end());
  for (size_t i = 0; i < to.ids.size(); ++i) to.logits[i] = float(x[to.ids[i]]);
}

}  // namespace

HeadLogits::HeadLogits(const Of& of) : of_(of) {
  MicroBatch batch;
  batch.stream = of.step.stream();
  states_ = of.arena.alloc(of.step.precision.compute, of.model.stream_shape(batch), of.model.stream_place());
}

void HeadLogits::each(Backend& backend, const Take& take) const {
  const int64_t classes = of_.model.spec().vocab_size, all = states_.rows();
  const int64_t rows = std::max<int64_t>(1, kBytesAtOnce / (classes * size_of(of_.step.precision.stat)));
  const MicroBatch batch;
  Arena* const arena = &of_.arena;
  Pass p{backend, of_.mesh, of_.step.precision, batch, arena, arena, arena, arena, arena};
  for (int64_t first = 0; first < all; first += rows) {
    Scope chunk(of_.arena);
    const int64_t count = std::min(rows, all - first);
    const Tensor logits = p.stat(arena, {count, classes}, tokens(Spmd::Invariant));
    of_.model.vocabulary().logits(p, states_.slice_rows(first, count), logits);
    backend.wait_all();
    take(first, logits);
  }
}

void find_top(const Tensor& logits, int64_t row, double temperature, const LargestOfToken& to) {
  if (logits.dtype == DType::f64)
    find_top_of(logits.as<double>() + row * logits.row_stride, logits.cols(), temperature, to);
  else
    find_top_of(logits.as<float>() + row * logits.row_stride, logits.cols(), temperature, to);
}

}  // namespace weft
