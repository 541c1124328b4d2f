// Bounds one rendering's time and memory, so that no template can hang or fill the memory.
#pragma once
#include <cstddef>
#include <string>

#include "weft/base/error.h"

namespace weft::chat {

[[noreturn]] inline void fail(const std::string& what) { throw Error(what); }

// Each call throws Error once a bound is passed.
class Budget {
 public:
  static constexpr size_t kMaxSteps = 1'000'000;
  static constexpr size_t kMaxBytes = size_t{512} << 20;

  void step(size_t count = 1) {
    if ((steps_ += count) > kMaxSteps) fail("the template takes too many steps");
  }
  // Before this many bytes are made, of text or of a list.
  void make(size_t bytes) {
    if (bytes > kMaxBytes || (made_ += bytes) > kMaxBytes) fail("the template makes too much text");
  }
  // Before this many bytes are looked through.
  void read(size_t bytes) { step(1 + bytes / 256); }

 private:
  size_t steps_ = 0, made_ = 0;
};

}  // namespace weft::chat
