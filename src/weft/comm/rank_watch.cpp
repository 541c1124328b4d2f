#include "weft/comm/rank_watch.h"

#include <algorithm>
#include <string_view>

namespace weft {

bool CommCall::matches(const CommCall& other) const {
  return std::string_view(op) == other.op && number == other.number && dtype == other.dtype &&
         elements == other.elements;
}

std::string CommCall::to_string() const {
  std::string_view file = site.file;
  if (const size_t at = file.rfind("weft/"); at != std::string_view::npos) file.remove_prefix(at + 5);
  return fmt::format("{} {} of {} {}{} at {}:{}", op, number, elements, name_of(dtype),
                     peer < 0 ? "" : fmt::format(" with rank {}", peer), file, site.line);
}

void RankWatch::waits(int rank, const CommCall& call) {
  std::lock_guard lock(mutex_);
  ranks_.at(size_t(rank)) = {Is::waiting, call};
  ++changes_;
}

void RankWatch::goes_on(int rank) {
  std::lock_guard lock(mutex_);
  ranks_.at(size_t(rank)).is = Is::busy;
  ++changes_;
}

void RankWatch::ended(int rank) {
  std::lock_guard lock(mutex_);
  ranks_.at(size_t(rank)).is = Is::ended;
  ++changes_;
}

std::string RankWatch::stuck() const {
  std::lock_guard lock(mutex_);
  if (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.is == Is::busy; })) return "";
  std::string text;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    text += fmt::format("{}rank {} {}", r ? "; " : "", r,
                        ranks_[r].is == Is::ended ? "has ended" : "waits in " + ranks_[r].call.to_string());
  }
  return text;
}

}  // namespace weft
