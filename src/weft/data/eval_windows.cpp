#include "weft/data/eval_windows.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {

EvalWindows::EvalWindows(const DataSpec& given) : seq_length_(given.seq_length) {
  DataSpec spec = given;
  spec.part = DataSpec::Part::valid;
  sources_ = open_sources(spec);
  int64_t windows = 0;
  for (const size_t end : ends_of_sources(spec)) {
    const size_t first = ends_.size();
    const int64_t before = windows;
    for (size_t s = first; s < end; ++s) {
      const bool nothing_is_held_out = spec.valid_fraction > 0 && sources_[s].num_samples == 0;
      const int64_t here = sources_[s].packing->num_windows() - sources_[s].first_sample;
      ends_.push_back(windows += nothing_is_held_out ? 0 : std::max<int64_t>(0, here));
    }
    if (windows == before)
      throw FileError(fmt::format("{}: {} tokens give nothing to measure in windows of {}{}", spec.paths[first],
                                  sources_[first].tokens->size(), seq_length_,
                                  spec.valid_fraction > 0 ? " beside what is trained on" : ""));
  }
}

void EvalWindows::read(int64_t window, const SampleRows& to) const {
  WEFT_CHECK(window >= 0 && window < num_windows(), "window {} of {}", window, num_windows());
  check_lengths(to, seq_length_);
  const size_t i = size_t(std::upper_bound(ends_.begin(), ends_.end(), window) - ends_.begin());
  sources_[i].read(sources_[i].first_sample + window - (i == 0 ? 0 : ends_[i - 1]), to);
}

std::unique_ptr<EvalWindows> open_eval_windows(const DataSpec& spec) { return std::make_unique<EvalWindows>(spec); }

}  // namespace weft
