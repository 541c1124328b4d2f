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
  check_groups();
  if (spec_.mixes) check_mixed();
  order_ = fmt::format("rows S={} seed={} shuffle={} 0+{}", spec_.seq_length, spec_.seed, spec_.shuffle, rows_.size());
  if (spec_.rows_of_group > 1) order_ += fmt::format(" groups={}", spec_.rows_of_group);
  if (spec_.steps_of_batch > 1) order_ += fmt::format(" times={}", spec_.steps_of_batch);
  if (spec_.begun > 0) order_ += fmt::format(" begun={}", spec_.begun);
  fingerprint_ = fmt::format("{} {}", order_, rows_.fingerprint());
}

void RowOrder::read(int64_t k, const SampleRows& to) const { read_row(row_of(k), k % rows_.num_completions(), to); }

void RowOrder::read_row(int64_t row, int64_t completion, const SampleRows& to) const {
  read(rows_.prompt(row), rows_.completion(row, completion), to);
}

void RowOrder::read_other(int64_t k, const SampleRows& to) const {
  read(rows_.prompt(row_of(k)), rows_.completion(row_of_other(k), 0), to);
}

int64_t RowOrder::row_of_other(int64_t k) const {
  WEFT_CHECK(spec_.mixes && rows_.num_completions() == 1, "rows whose completions are not mixed");
  const int64_t in_step = k % spec_.rows_of_step;
  return row_of(k - in_step + (in_step + spec_.rows_of_step - 1) % spec_.rows_of_step);
}

void RowOrder::read(std::span<const int32_t> prompt, std::span<const int32_t> completion, const SampleRows& to) const {
  check_lengths(to, spec_.seq_length);
  WEFT_CHECK(to.weights.empty(), "rows are weighed by their objective alone");
  const auto rest =
      std::copy(completion.begin(), completion.end(), std::copy(prompt.begin(), prompt.end(), to.ids.begin()));
  std::fill(rest, to.ids.end(), 0);
  std::copy(to.ids.begin() + 1, to.ids.end(), to.targets.begin());
  to.targets.back() = 0;
  std::fill(to.counted.begin(), to.counted.end(), uint8_t(0));
  const auto end = to.counted.begin() + std::ptrdiff_t(prompt.size() + completion.size());
  if (spec_.scores_ends)
    end[-1] = 1;
  else
    std::fill(end - std::ptrdiff_t(completion.size()) - 1, end - 1, uint8_t(1));
  std::fill(to.further_counted.begin(), to.further_counted.end(), uint8_t(0));
  std::iota(to.positions.begin(), to.positions.end(), 0);
}

OpenSource::Counted RowOrder::counted(int64_t k) const {
  if (spec_.scores_ends) return {.targets = 1, .further = 0, .documents = 1};
  return {.targets = int64_t(rows_.completion(row_of(k), k % rows_.num_completions()).size()),
          .further = 0,
          .documents = 1};
}

TrainingSamples::Walked RowOrder::walked_most(double drawn) const {
  return {
      .times = drawn / double(rows_.size()), .samples = rows_.size(), .file = rows_.file().string(), .is_all = true};
}

int64_t RowOrder::row_of(int64_t global_sample) const {
  WEFT_CHECK(global_sample >= 0, "sample {}", global_sample);
  const int64_t drawn = global_sample / rows_.num_completions(), step = drawn / spec_.rows_of_step;
  const int64_t index = spec_.begun + step / spec_.steps_of_batch * spec_.rows_of_step + drawn % spec_.rows_of_step;
  const int64_t group = index / spec_.rows_of_group, groups = rows_.size() / spec_.rows_of_group;
  const int64_t epoch = group / groups, at = group % groups;
  const auto shuffled = [&] {
    return Permutation(rng_key(rng_key(spec_.seed, "data order"), uint64_t(epoch)), groups)(at);
  };
  return (spec_.shuffle ? shuffled() : at) * spec_.rows_of_group + index % spec_.rows_of_group;
}

void RowOrder::check_groups() const {
  if (rows_.size() % spec_.rows_of_group != 0)
    throw FileError(
        fmt::format("{}: {} rows are no whole groups of {} (objective.group_size); a group is missing rows, or "
                    "its size is another",
                    rows_.file().string(), rows_.size(), spec_.rows_of_group));
  for (int64_t row = 0; row < rows_.size(); ++row) {
    const int64_t first = row / spec_.rows_of_group * spec_.rows_of_group;
    const auto one = rows_.prompt(first), other = rows_.prompt(row);
    if (!std::equal(one.begin(), one.end(), other.begin(), other.end()))
      throw FileError(
          fmt::format("{}: {}: its prompt is not that of {}, though {} rows are a group of one prompt "
                      "(objective.group_size); rows of a prompt must follow each other",
                      rows_.file().string(), rows_.place_of(row), rows_.place_of(first), spec_.rows_of_group));
  }
}

// Those that are read together where that is known, else the longest of all.
void RowOrder::check_mixed() const {
  const auto check = [&](int64_t prompt, int64_t completion) {
    const auto tokens = int64_t(rows_.prompt(prompt).size() + rows_.completion(completion, 0).size());
    if (tokens > spec_.seq_length)
      throw FileError(fmt::format(
          "{}: {}: its prompt with the completion of {} has {} tokens, more than "
          "train.seq_length = {}; the reference point of kto needs such sequences: raise that, or "
          "leave a row out",
          rows_.file().string(), rows_.place_of(prompt), rows_.place_of(completion), tokens, spec_.seq_length));
  };
  const int64_t n = rows_.size(), of_step = spec_.rows_of_step;
  if (!spec_.shuffle && n % of_step == 0 && spec_.begun % of_step == 0) {
    for (int64_t row = 0; row < n; ++row) check(row, row / of_step * of_step + (row % of_step + of_step - 1) % of_step);
    return;
  }
  int64_t prompt = 0, completion = 0;
  for (int64_t row = 0; row < n; ++row) {
    if (rows_.prompt(row).size() > rows_.prompt(prompt).size()) prompt = row;
    if (rows_.completion(row, 0).size() > rows_.completion(completion, 0).size()) completion = row;
  }
  check(prompt, completion);
}

}  // namespace weft
