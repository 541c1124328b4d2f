// All of some text, once, in windows: for measuring a loss exactly.
#pragma once
#include "weft/data/open_sources.h"

namespace weft {

// Consecutive windows of seq_length over each source (over its held-out samples where valid_fraction is given), or the
// samples of its packing. Every token but the first of a source (or, where documents are packed or kept apart, of a
// document) is a target once; what is not full is filled up with targets that do not count. Immutable; any thread may
// read.
class EvalWindows {
 public:
  // Weights, seed and shuffling of `spec` do not matter here. Throws FileError, ConfigError: also where a source has
  // nothing to measure.
  explicit EvalWindows(const DataSpec& spec);

  int64_t num_windows() const { return ends_.empty() ? 0 : ends_.back(); }
  // Throws as SampleOrder::read.
  void read(int64_t window, const SampleRows& to) const;

 private:
  std::vector<OpenSource> sources_;
  std::vector<int64_t> ends_;  // windows of sources 0 .. s
  int64_t seq_length_;
};

std::unique_ptr<EvalWindows> open_eval_windows(const DataSpec& spec);

}  // namespace weft
