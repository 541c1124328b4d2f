#include "weft/train/batch_loader.h"

#include <algorithm>

namespace weft {

SampleRows rows_of(MicroBatch& b, int64_t row, std::span<uint8_t> counted) {
  const size_t n = counted.size();
  return {.ids = {b.ids.as<int32_t>() + row, n},
          .targets = {b.targets.as<int32_t>() + row, n},
          .counted = counted,
          .positions = {b.positions.as<int32_t>() + row, n}};
}

void set_weights(MicroBatch& b, int64_t row, std::span<const uint8_t> counted) {
  if (b.weights.dtype == DType::f64)
    std::copy(counted.begin(), counted.end(), b.weights.as<double>() + row);
  else
    std::copy(counted.begin(), counted.end(), b.weights.as<float>() + row);
}

// A span's positions are those in the sample: dropout's random numbers of two documents of a sample are then others.
void add_spans(const MicroBatch& b, Run rows, int64_t sample, std::vector<AttentionSpan>& spans) {
  const int32_t* positions = b.positions.as<int32_t>() + rows.first;
  for (int64_t begin = 0, end; begin < rows.count; begin = end) {
    for (end = begin + 1; end < rows.count && positions[end] != 0;) ++end;
    const int64_t row = rows.first + begin, count = end - begin;
    spans.push_back({row, count, row, count, begin, begin, sample});
  }
}

BatchLoader::BatchLoader(const SampleOrder& order, Shape shape)
    : order_(order), shape_(shape), spans_(size_t(shape.order.num_micro_batches)), counted_(size_t(shape.seq_length)) {}

int64_t BatchLoader::counted(int64_t step) const {
  int64_t n = 0;
  for (int64_t i = 0; i < shape_.global_batch_size(); ++i)
    n += order_.counted_targets(step * shape_.global_batch_size() + i);
  return n;
}

void BatchLoader::load(int64_t step, MicroBatch& b) {
  const int64_t s = shape_.seq_length;
  std::vector<AttentionSpan>& spans = spans_[size_t(b.index)];
  spans.clear();
  const int64_t first = step * shape_.global_batch_size() + shape_.order.global_of(b.index) * shape_.micro_batch_size;
  for (int64_t i = 0; i < shape_.micro_batch_size; ++i) {
    const int64_t sample = first + i, row = i * s;
    order_.read(sample, rows_of(b, row, counted_));
    set_weights(b, row, counted_);
    for (int64_t j = 0; j < s; ++j) b.tokens.as<int64_t>()[row + j] = sample * s + j;
    add_spans(b, {row, s}, sample, spans);
  }
  b.spans = spans;
}

}  // namespace weft
