#include "weft/data/row_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/rng.h"
#include "weft/data/sample_order.h"

namespace weft {

RowOrder::RowOrder(IdRows rows, const Spec& spec) : rows_(std::move(rows)), spec_(spec) {
  if (rows_.size() < spec_.rows_of_step)
    throw FileError(
        fmt::format("{}: {} rows, fewer than a step takes (train.global_batch_size = {}); lower that, or "
                    "add rows",
                    rows_.file().string(), rows_.size(), spec_.rows_of_step));
  order_ = fmt::format("rows S={} seed={} shuffle={} 0+{}", spec_.seq_length, spec_.seed, spec_.shuffle, rows_.size());
  fingerprint_ = fmt::format("{} {}", order_, rows_.fingerprint());
}

void RowOrder::read(int64_t k, const SampleRows& to) const {
  check_lengths(to, spec_.seq_length);
  const int64_t row = row_of(k);
  const auto prompt = rows_.prompt(row), completion = rows_.completion(row, k % rows_.num_completions());
  const auto rest =
      std::copy(completion.begin(), completion.end(), std::copy(prompt.begin(), prompt.end(), to.ids.begin()));
  std::fill(rest, to.ids.end(), 0);
  std::copy(to.ids.begin() + 1, to.ids.end(), to.targets.begin());
  to.targets.back() = 0;
  std::fill(to.counted.begin(), to.counted.end(), uint8_t(0));
  std::fill_n(to.counted.begin() + std::ptrdiff_t(prompt.size()) - 1, completion.size(), uint8_t(1));
  std::fill(to.further_counted.begin(), to.further_counted.end(), uint8_t(0));
  std::iota(to.positions.begin(), to.positions.end(), 0);
}

OpenSource::Counted RowOrder::counted(int64_t k) const {
  return {.targets = int64_t(rows_.completion(row_of(k), k % rows_.num_completions()).size()), .further = 0};
}

TrainingSamples::Walked RowOrder::walked_most(double drawn) const {
  return {
      .times = drawn / double(rows_.size()), .samples = rows_.size(), .file = rows_.file().string(), .is_all = true};
}

int64_t RowOrder::row_of(int64_t global_sample) const {
  WEFT_CHECK(global_sample >= 0, "sample {}", global_sample);
  const int64_t index = global_sample / rows_.num_completions(), epoch = index / rows_.size(),
                at = index % rows_.size();
  if (!spec_.shuffle) return at;
  return Permutation(rng_key(rng_key(spec_.seed, "data order"), uint64_t(epoch)), rows_.size())(at);
}

}  // namespace weft
