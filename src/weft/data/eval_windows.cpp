#include "weft/data/eval_windows.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {

EvalWindows::EvalWindows(const DataSpec& given) : seq_length_(given.seq_length) {
  DataSpec spec = given;
  spec.part = DataSpec::Part::valid;
  sources_ = open_sources(spec);
  int64_t windows = 0;
  for (size_t s = 0; s < sources_.size(); ++s) {
    const int64_t first = sources_[s].first_sample * seq_length_;
    const int64_t targets = sources_[s].tokens->size() - 1 - first;
    if (targets <= 0 || (spec.valid_fraction > 0 && sources_[s].num_samples == 0))
      throw FileError(fmt::format("{}: {} tokens give nothing to measure in windows of {}{}", spec.paths[s],
                                  sources_[s].tokens->size(), seq_length_,
                                  spec.valid_fraction > 0 ? " beside what is trained on" : ""));
    first_.push_back(first);
    ends_.push_back(windows += (targets - 1) / seq_length_ + 1);
  }
}

void EvalWindows::read(int64_t window, std::span<int32_t> ids, std::span<int32_t> targets,
                       std::span<uint8_t> counted) const {
  WEFT_CHECK(window >= 0 && window < num_windows(), "window {} of {}", window, num_windows());
  const size_t length = size_t(seq_length_);
  WEFT_CHECK(ids.size() == length && targets.size() == length && counted.size() == length,
             "spans of {}, {} and {} for windows of {}", ids.size(), targets.size(), counted.size(), length);
  const size_t i = size_t(std::upper_bound(ends_.begin(), ends_.end(), window) - ends_.begin());
  const OpenSource& s = sources_[i];
  const int64_t first = first_[i] + (window - (i == 0 ? 0 : ends_[i - 1])) * seq_length_;
  const size_t n = size_t(std::min(seq_length_, s.tokens->size() - 1 - first));
  s.tokens->read(first, ids.first(n));
  s.tokens->read(first + 1, targets.first(n));
  if (s.mask)
    s.mask->read(first, counted.first(n));
  else
    std::fill_n(counted.begin(), n, uint8_t(1));
  std::fill(ids.begin() + std::ptrdiff_t(n), ids.end(), 0);
  std::fill(targets.begin() + std::ptrdiff_t(n), targets.end(), 0);
  std::fill(counted.begin() + std::ptrdiff_t(n), counted.end(), uint8_t(0));
}

std::unique_ptr<EvalWindows> open_eval_windows(const DataSpec& spec) { return std::make_unique<EvalWindows>(spec); }

}  // namespace weft
