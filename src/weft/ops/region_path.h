// The nested regions that a backend is in.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"

namespace weft {

class RegionPath {
 public:
  void enter(std::string_view region) {
    ends_.push_back(text_.size());
    if (!text_.empty()) text_ += '/';
    text_ += region;
  }
  void leave() {
    WEFT_CHECK(!ends_.empty(), "a region was left that was not entered");
    text_.resize(ends_.back());
    ends_.pop_back();
  }
  // From the outermost in: "blocks.3/attn"; "" outside of all.
  const std::string& text() const { return text_; }
  // The beginning of a message: "blocks.3/attn: ", or nothing.
  std::string prefix() const { return text_.empty() ? "" : text_ + ": "; }

 private:
  std::string text_;
  std::vector<size_t> ends_;  // of the text before each region
};

}  // namespace weft
