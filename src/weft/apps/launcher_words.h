// What mpirun says of its own among the lines of the ranks.
#pragma once
#include <string>
#include <string_view>

namespace weft {

// Reads mpirun's standard error as it comes. mpirun's own words stand between lines of dashes: those on how a rank
// ended are taken out, because weft says it better, and kept; all else passes.
class LauncherWords {
 public:
  // What of these bytes, and of those held back before, is to be shown. A line is held back only while it may be
  // dashes.
  std::string pass(std::string_view bytes);
  // What is still held back, at the end.
  std::string rest();
  // "rank 1 on host a" where a rank was ended by a signal; else empty.
  const std::string& ended_rank() const { return ended_rank_; }

 private:
  std::string take_lines();
  void close_block(std::string& shown);

  std::string held_;
  std::string block_;  // from its first line of dashes
  std::string ended_rank_;
};

}  // namespace weft
