#include "weft/train/batch_loader.h"

namespace weft {

BatchLoader::BatchLoader(const DataStream& stream, Shape shape)
    : stream_(stream), shape_(shape), spans_(size_t(shape.order.num_micro_batches)) {
  for (auto& spans : spans_) spans.resize(size_t(shape.micro_batch_size));
}

int64_t BatchLoader::counted(int64_t step) const {
  int64_t n = 0;
  for (int64_t i = 0; i < shape_.global_batch_size(); ++i)
    n += stream_.counted_targets(step * shape_.global_batch_size() + i);
  return n;
}

void BatchLoader::load(int64_t step, MicroBatch& b) {
  const int64_t s = shape_.seq_length;
  const int64_t first = step * shape_.global_batch_size() + shape_.order.global_of(b.index) * shape_.micro_batch_size;
  for (int64_t i = 0; i < shape_.micro_batch_size; ++i) {
    const int64_t sample = first + i, row = i * s;
    stream_.read(sample, {b.ids.as<int32_t>() + row, size_t(s)}, {b.targets.as<int32_t>() + row, size_t(s)},
                 {b.counted.as<uint8_t>() + row, size_t(s)});
    for (int64_t j = 0; j < s; ++j) {
      b.positions.as<int32_t>()[row + j] = int32_t(j);
      b.tokens.as<int64_t>()[row + j] = sample * s + j;
    }
    spans_[size_t(b.index)][size_t(i)] = {.q_row = row, .q_count = s, .k_row = row, .k_count = s, .sample = sample};
  }
  b.spans = spans_[size_t(b.index)];
}

}  // namespace weft
