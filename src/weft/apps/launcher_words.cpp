#include "weft/apps/launcher_words.h"

#include <algorithm>
#include <cstdio>

namespace weft {
namespace {

constexpr size_t kDashes = 74;          // of Open MPI 4 and 5
constexpr size_t kLongBlock = 8 << 10;  // more is no word of mpirun's

bool is_dashes(std::string_view line) {
  return line.size() == kDashes && std::all_of(line.begin(), line.end(), [](char c) { return c == '-'; });
}

bool may_become_dashes(std::string_view line) {
  return line.size() <= kDashes && std::all_of(line.begin(), line.end(), [](char c) { return c == '-'; });
}

constexpr const char* kNoticed = "mpirun noticed that process rank %d with PID %*d on node %255s exited on signal";

// Of what stands between the dashes.
const char* first_line(const std::string& block) { return block.c_str() + block.find('\n') + 1; }

bool tells_of_an_end(const std::string& block) {
  static constexpr std::string_view kBegins[] = {"Primary job ", "mpirun noticed that process rank ",
                                                 "mpirun detected that one or more processes exited"};
  const std::string_view words = first_line(block);
  return std::any_of(std::begin(kBegins), std::end(kBegins),
                     [&](std::string_view begin) { return words.substr(0, begin.size()) == begin; });
}

}  // namespace

std::string LauncherWords::pass(std::string_view bytes) {
  held_ += bytes;
  std::string shown = take_lines();
  const bool is_text = block_.empty() ? !may_become_dashes(held_) : block_.size() + held_.size() > kLongBlock;
  return is_text ? shown + rest() : shown;
}

std::string LauncherWords::rest() {
  std::string shown = block_ + held_;
  block_.clear();
  held_.clear();
  return shown;
}

std::string LauncherWords::take_lines() {
  std::string shown;
  size_t begin = 0;
  for (size_t end; (end = held_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(held_).substr(begin, end - begin);
    const bool dashes = is_dashes(line), inside = !block_.empty();
    std::string& to = dashes || inside ? block_ : shown;
    to.append(line).push_back('\n');
    if (inside && dashes) close_block(shown);
  }
  held_.erase(0, begin);
  return shown;
}

void LauncherWords::close_block(std::string& shown) {
  int rank = 0;
  char host[256];
  if (!tells_of_an_end(block_))
    shown += block_;
  else if (ended_rank_.empty() && std::sscanf(first_line(block_), kNoticed, &rank, host) == 2)
    ended_rank_ = "rank " + std::to_string(rank) + " on host " + host;
  block_.clear();
}

}  // namespace weft
