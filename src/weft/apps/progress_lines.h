// Lines of long work without steps.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>

#include "weft/records/clock.h"
#include "weft/records/progress.h"

namespace weft {

// A line on standard error now and then, for as long as it goes on: "3 of 28 matrices, 5 s left".
class ProgressLines {
 public:
  explicit ProgressLines(std::string_view what) : what_(what) {}
  void operator()(int64_t done, int64_t all) {
    const double now = now_s();
    if (now - said_ < kBetween_s && done < all) return;
    said_ = now;
    std::cerr << fmt::format("{} of {} {}, {} left\n", done, all, what_,
                             format_duration((now - began_) * double(all - done) / double(done)));
  }

 private:
  static constexpr double kBetween_s = 5;
  const std::string what_;
  const double began_ = now_s();
  double said_ = began_;
};

}  // namespace weft
