#include "weft/apps/launcher_words.h"

#include <algorithm>
#include <regex>

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

bool tells_of_an_end(const std::string& block) {
  static const char* const kBegins[] = {"Primary job ", "mpirun noticed that process rank ",
                                        "mpirun detected that one or more processes exited"};
  const size_t first = block.find('\n') + 1;
  return std::any_of(std::begin(kBegins), std::end(kBegins),
                     [&](const char* begin) { return block.compare(first, std::string(begin).size(), begin) == 0; });
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
  static const std::regex kEnded("process rank ([0-9]+) with PID [0-9]+ on node (\\S+) exited on signal");
  std::smatch found;
  if (!tells_of_an_end(block_))
    shown += block_;
  else if (ended_rank_.empty() && std::regex_search(block_, found, kEnded))
    ended_rank_ = "rank " + found[1].str() + " on host " + found[2].str();
  block_.clear();
}

}  // namespace weft
