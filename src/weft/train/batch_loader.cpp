#include "weft/train/batch_loader.h"

#include <algorithm>
#include <numeric>

#include "weft/records/clock.h"

namespace weft {

WholeSample::WholeSample(int64_t seq_length)
    : ids(size_t(seq_length)),
      targets(ids.size()),
      positions(ids.size()),
      counted(ids.size()),
      further_counted(ids.size()) {}

namespace {

template <class From, class To>
void copy_run(const std::vector<From>& from, const Run& run, To* to) {
  std::copy_n(from.begin() + run.first, run.count, to);
}

// Rows from `row` on of a tensor of weights.
template <class From>
void copy_weights(const std::vector<From>& from, const Run& run, const Tensor& weights, int64_t row) {
  if (weights.dtype == DType::f64)
    copy_run(from, run, weights.as<double>() + row);
  else
    copy_run(from, run, weights.as<float>() + row);
}

// The target of the next row; 0 of the last row, where it does not count.
void copy_further(const WholeSample& sample, const Run& run, const MicroBatch& b, int64_t row) {
  for (int64_t at = run.first; at < run.end(); ++at)
    b.mtp_targets.as<int32_t>()[row + at - run.first] =
        at + 1 < int64_t(sample.targets.size()) ? sample.targets[size_t(at + 1)] : 0;
  copy_weights(sample.further_counted, run, b.mtp_weights, row);
}

}  // namespace

int64_t set_sequence(MicroBatch& b, int64_t i, const WholeSample& sample, int64_t first_token) {
  int64_t row = i * b.sequences.rows(), counted = 0;
  for (const Run& run : b.sequences.runs()) {
    copy_run(sample.ids, run, b.ids.as<int32_t>() + row);
    copy_run(sample.targets, run, b.targets.as<int32_t>() + row);
    copy_run(sample.positions, run, b.positions.as<int32_t>() + row);
    if (sample.weights.empty())
      copy_weights(sample.counted, run, b.weights, row);
    else
      copy_weights(sample.weights, run, b.weights, row);
    if (b.mtp_targets) copy_further(sample, run, b, row);
    std::iota(b.tokens.as<int64_t>() + row, b.tokens.as<int64_t>() + row + run.count, first_token + run.first);
    counted += std::count(sample.counted.begin() + run.first, sample.counted.begin() + run.end(), uint8_t(1));
    row += run.count;
  }
  return counted;
}

namespace {

// The rows of a run of a [S, width] matrix, to those from `row` on of a tensor of dtype stat.
void copy_rows(const std::vector<float>& from, const Run& run, int64_t width, const Tensor& to, int64_t row) {
  const Run elements{run.first * width, run.count * width};
  if (to.dtype == DType::f64)
    copy_run(from, elements, to.as<double>() + row * width);
  else
    copy_run(from, elements, to.as<float>() + row * width);
}

}  // namespace

void set_top(MicroBatch& b, int64_t i, const WholeTop& top) {
  const int64_t k = b.top.ids.cols();
  int64_t row = i * b.sequences.rows();
  for (const Run& run : b.sequences.runs()) {
    copy_run(top.ids, {run.first * k, run.count * k}, b.top.ids.as<int32_t>() + row * k);
    copy_rows(top.logits, run, k, b.top.logits, row);
    copy_rows(top.lse, run, 1, b.top.lse, row);
    row += run.count;
  }
}

// A span's positions are those in the sample: dropout's random numbers of two documents of a sample are then others.
void add_spans(int64_t i, std::span<const int32_t> positions, int64_t sample, std::vector<AttentionSpan>& spans) {
  const auto length = int64_t(positions.size());
  for (int64_t begin = 0, end; begin < length; begin = end) {
    for (end = begin + 1; end < length && positions[size_t(end)] != 0;) ++end;
    const int64_t row = i * length + begin, count = end - begin;
    spans.push_back({row, count, row, count, begin, begin, sample});
  }
}

BatchLoader::BatchLoader(const TrainingSamples& samples, Shape shape)
    : samples_(samples), shape_(shape), spans_(size_t(shape.order.num_micro_batches)), sample_(shape.seq_length) {
  if (shape.documents_alike) sample_.weights.resize(size_t(shape.seq_length));
}

OpenSource::Counted BatchLoader::counted(int64_t step) const {
  OpenSource::Counted n;
  for (int64_t i = 0; i < shape_.global_batch_size(); ++i) {
    const OpenSource::Counted here = samples_.counted(shape_.sample_of(step) + i);
    n.targets += here.targets;
    n.further += here.further;
    n.documents += here.documents;
  }
  return n;
}

void BatchLoader::load(int64_t step, MicroBatch& b) {
  add_time(read_s_, [&] {
    load_by(&TrainingSamples::read, step, b);
    if (b.top.ids) load_top(step, b);
  });
}

void BatchLoader::load_top(int64_t step, MicroBatch& b) {
  top_.resize(shape_.seq_length, b.top.ids.cols());
  for (int64_t i = 0; i < shape_.micro_batch_size; ++i) {
    samples_.read_top(first_of(step, b.index) + i, top_.rows());
    set_top(b, i, top_);
  }
}

void BatchLoader::load_others(int64_t step, MicroBatch& b) {
  add_time(read_s_, [&] { load_by(&TrainingSamples::read_other, step, b); });
}

void BatchLoader::load_global(int64_t step, MicroBatch& b) {
  const int64_t first = first_of(step) + b.index * shape_.micro_batch_size;
  add_time(read_s_, [&] { load_samples(&TrainingSamples::read, first, b, global_spans_); });
}

void BatchLoader::load_other_ranks(int64_t step, int64_t global, MicroBatch& b) {
  const int64_t first = first_of(step) + global * shape_.micro_batch_size;
  add_time(read_s_, [&] { load_samples(&TrainingSamples::read, first, b, spans_[size_t(b.index)]); });
}

int64_t BatchLoader::first_of(int64_t step, int64_t micro_batch) const {
  return first_of(step) + shape_.order.global_of(micro_batch) * shape_.micro_batch_size;
}

void BatchLoader::load_by(Read read, int64_t step, MicroBatch& b) {
  load_samples(read, first_of(step, b.index), b, spans_[size_t(b.index)]);
}

void BatchLoader::load_samples(Read read, int64_t first, MicroBatch& b, std::vector<AttentionSpan>& spans) {
  spans.clear();
  for (int64_t i = 0; i < shape_.micro_batch_size; ++i) {
    (samples_.*read)(first + i, sample_.rows());
    set_sequence(b, i, sample_, (first + i) * shape_.seq_length);
    add_spans(i, sample_.positions, first + i, spans);
  }
  b.spans = spans;
}

}  // namespace weft
