// All of some text, once, in windows: for measuring a loss exactly.
#pragma once
#include "weft/data/data_stream.h"

namespace weft {

// Consecutive windows of seq_length over each source (over its held-out samples where valid_fraction is given). Every
// token but the first of a source is a target once; the last window of a source is filled up with targets that do not
// count. Immutable; any thread may read.
class EvalWindows {
 public:
  explicit EvalWindows(const DataSpec& spec);
  int64_t num_windows() const { return ends_.empty() ? 0 : ends_.back(); }
  void read(int64_t window, std::span<int32_t> ids, std::span<int32_t> targets, std::span<uint8_t> counted) const;

 private:
  struct Range {
    size_t source;
    int64_t first;  // token
  };
  std::vector<OpenSource> sources_;
  std::vector<Range> ranges_;
  std::vector<int64_t> ends_;  // windows of ranges 0 .. r
  int64_t seq_length_;
};

std::unique_ptr<EvalWindows> open_eval_windows(const DataSpec& spec);

}  // namespace weft
