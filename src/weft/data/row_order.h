// The order in which a run sees rows of token ids (docs/formats/sample_order.md).
#pragma once
#include "weft/data/id_rows.h"
#include "weft/data/training_samples.h"

namespace weft {

// Which samples a batch has: `first_batch` begins with `first_sample`, and the others follow it.
struct BatchPlace {
  int64_t first_batch = 0, first_sample = 0;
  int64_t sample_of(int64_t batch, int64_t samples_of_batch) const {
    return first_sample + (batch - first_batch) * samples_of_batch;
  }
};

// Every row once an epoch, so many steps in a row. Sample k is completion k mod c of the row that is number k / c in
// the order, where rows have c completions: those of a row follow each other. A sample is the prompt with that
// completion, whose tokens alone count as targets; behind them it is filled up with id 0. Where sequences are scored
// instead, the position of the last of these tokens counts, whatever would follow it.
class RowOrder final : public TrainingSamples {
 public:
  struct Spec {
    int64_t rows_of_step = 0, seq_length = 0;
    int64_t steps_of_batch = 1;  // steps that take the same rows, one after the other
    int64_t rows_of_group =
        1;                     // rows next to each other in the file, of one prompt, that stay so; divides rows_of_step
    bool scores_ends = false;  // what counts is the last token of each sequence, in place of the completion's tokens
    bool mixes = false;        // whether prompts are also read with other completions; of rows with one each
    uint64_t seed = 0;
    bool shuffle = false;  // a new order each epoch; else the order of the file
    int64_t begun = 0;     // rows of the order that were taken before: it goes on behind them
  };
  // Throws FileError where a step needs more rows than there are, they are no whole groups of one prompt each, or a
  // prompt is too long for another completion.
  RowOrder(IdRows rows, const Spec& spec);

  void read(int64_t global_sample, const SampleRows& to) const override;
  // The prompt with the completion of the sample before it in the same step, the first one's with the last one's.
  void read_other(int64_t global_sample, const SampleRows& to) const override;
  OpenSource::Counted counted(int64_t global_sample) const override;
  const RowOrder* rows() const override { return this; }
  int64_t samples_per_epoch() const override { return rows_.size() * spec_.steps_of_batch; }
  Walked walked_most(double drawn) const override;
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::string& order_fingerprint() const override { return order_; }

  int64_t row_of(int64_t global_sample) const;
  int64_t row_of_other(int64_t global_sample) const;  // whose completion read_other takes
  int64_t rows_of_step() const { return spec_.rows_of_step; }
  // A row's prompt with one of its completions, wherever the order has it.
  void read_row(int64_t row, int64_t completion, const SampleRows& to) const;
  const IdRows& id_rows() const { return rows_; }

 private:
  void check_groups() const;
  void check_mixed() const;
  void read(std::span<const int32_t> prompt, std::span<const int32_t> completion, const SampleRows& to) const;

  const IdRows rows_;
  const Spec spec_;
  std::string fingerprint_, order_;
};

}  // namespace weft
