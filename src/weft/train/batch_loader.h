// From samples to the tensors of micro-batches.
#pragma once
#include <vector>

#include "weft/data/sample_order.h"
#include "weft/nn/pass.h"
#include "weft/sharding/param_store.h"

namespace weft {

// The rows of a micro-batch from `row` on, to be filled; what counts of them then becomes weights, 1 or 0.
SampleRows rows_of(MicroBatch& b, int64_t row, std::span<uint8_t> counted);
void set_weights(MicroBatch& b, int64_t row, std::span<const uint8_t> counted);
// Adds the spans of a sample in these rows: one begins wherever a position is 0.
void add_spans(const MicroBatch& b, Run rows, int64_t sample, std::vector<AttentionSpan>& spans);

// Micro-batch m of a rank's step s holds the global samples from s G + g(m) B on: the order is SampleOrder's alone.
//   G sequences of a global batch   B sequences of a micro-batch   g(m) which of the global batch's micro-batches it is
class BatchLoader {
 public:
  struct Shape {
    int64_t seq_length, micro_batch_size;
    GradientOrder order;
    int64_t global_batch_size() const { return micro_batch_size * order.global_micro_batches(); }
  };
  BatchLoader(const SampleOrder& order, Shape shape);

  // Counted targets of a step's global batch.
  int64_t counted(int64_t step) const;
  // Fills micro-batch b.index of a step. Its spans stay valid until the next load of that index.
  void load(int64_t step, MicroBatch& b);

 private:
  const SampleOrder& order_;
  Shape shape_;
  std::vector<std::vector<AttentionSpan>> spans_;  // [micro-batch]
  std::vector<uint8_t> counted_;                   // of the sample that is read
};

}  // namespace weft
