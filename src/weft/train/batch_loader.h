// From samples to the tensors of micro-batches.
#pragma once
#include <utility>
#include <vector>

#include "weft/data/training_samples.h"
#include "weft/nn/pass.h"
#include "weft/sharding/param_store.h"

namespace weft {

// A whole sequence on the host, on its way to the rows of the ranks that share it.
struct WholeSample {
  std::vector<int32_t> ids, targets, positions;  // [S]
  std::vector<uint8_t> counted, further_counted;
  std::vector<double> weights = {};  // [S], or none: each target that counts weighs 1
  explicit WholeSample(int64_t seq_length);
  SampleRows rows() {
    return {.ids = ids,
            .targets = targets,
            .counted = counted,
            .positions = positions,
            .further_counted = further_counted,
            .weights = weights};
  }
};
// Likewise what is stored of a teacher's logits at its tokens.
struct WholeTop {
  std::vector<int32_t> ids;        // [S k]
  std::vector<float> logits, lse;  // [S k], [S]
  void resize(int64_t seq_length, int64_t top) {
    ids.resize(size_t(seq_length * top));
    logits.resize(ids.size());
    lse.resize(size_t(seq_length));
  }
  TopRows rows() { return {.ids = ids, .logits = logits, .lse = lse}; }
};
// Fills the rows that this rank has of sequence i of a micro-batch, with the sample's weights, else 1 or 0 as they
// count, and token numbers from `first_token` on; mtp_targets and mtp_weights where it has them. Returns how many of
// its targets count.
int64_t set_sequence(MicroBatch& b, int64_t i, const WholeSample& sample, int64_t first_token);
// Likewise MicroBatch::top.
void set_top(MicroBatch& b, int64_t i, const WholeTop& top);
// Adds the documents of sequence i: one begins wherever a position is 0. `sample`: its global number.
void add_spans(int64_t i, std::span<const int32_t> positions, int64_t sample, std::vector<AttentionSpan>& spans);

// Micro-batch m of a rank's step s holds the global samples from k + (s - f) G + g(m) B on: the order is
// TrainingSamples' alone.
//   f first step of a phase, 0 without phases   k global sample with which it begins   G sequences of a global batch B
//   sequences of a micro-batch   g(m) which of the global batch's micro-batches it is
class BatchLoader {
 public:
  struct Shape {
    int64_t seq_length, micro_batch_size;
    GradientOrder order;
    int64_t first_step = 0, first_sample = 0;
    bool documents_alike = false;  // what counts of a document in a sample weighs 1 together, else each target 1
    int64_t sample_of(int64_t step) const { return first_sample + (step - first_step) * global_batch_size(); }
    int64_t global_batch_size() const { return micro_batch_size * order.global_micro_batches(); }
  };
  BatchLoader(const TrainingSamples& samples, Shape shape);

  // What a step's global batch has.
  OpenSource::Counted counted(int64_t step) const;
  // What its weights are together: of how many its loss is the mean.
  int64_t units(const OpenSource::Counted& of) const { return shape_.documents_alike ? of.documents : of.targets; }
  // Fills micro-batch b.index of a step. Its spans stay valid until the next load of that index.
  void load(int64_t step, MicroBatch& b);
  // The same with the samples' other sequences (TrainingSamples::read_other).
  void load_others(int64_t step, MicroBatch& b);
  // The same of micro-batch b.index of the whole global batch, whoever trains on it. Its spans stay valid until the
  // next such load.
  void load_global(int64_t step, MicroBatch& b);
  // The same of micro-batch `global` of the global batch, in place of this rank's b.index: cut as that, and with spans
  // that stay as long.
  void load_other_ranks(int64_t step, int64_t global, MicroBatch& b);
  // Seconds in these since this was asked.
  double take_read_s() { return std::exchange(read_s_, 0); }
  // The global number of the first sample of a step, and of a micro-batch of this rank.
  int64_t first_of(int64_t step) const { return shape_.sample_of(step); }
  int64_t first_of(int64_t step, int64_t micro_batch) const;

 private:
  using Read = void (TrainingSamples::*)(int64_t, const SampleRows&) const;
  void load_by(Read read, int64_t step, MicroBatch& b);
  void load_samples(Read read, int64_t first, MicroBatch& b, std::vector<AttentionSpan>& spans);
  void load_top(int64_t step, MicroBatch& b);

  const TrainingSamples& samples_;
  Shape shape_;
  double read_s_ = 0;
  std::vector<std::vector<AttentionSpan>> spans_;  // [micro-batch]
  std::vector<AttentionSpan> global_spans_;        // of load_global
  WholeSample sample_;                             // that is read
  WholeTop top_;                                   // and its teacher's logits, where micro-batches have them
};

}  // namespace weft
