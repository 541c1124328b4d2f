#include "weft/comm/traffic.h"

#include "weft/base/error.h"

namespace weft {

Traffic Traffic::since(const Traffic& before) const {
  Traffic more;
  more.add(*this, 1);
  more.add(before, -1);
  std::erase_if(more.counts_, [](const auto& what) { return what.second.calls == 0; });
  return more;
}

void Traffic::add(const Traffic& more, int64_t times) {
  for (const auto& [what, count] : more.counts_) {
    Count& mine = counts_[what];
    mine.calls += times * count.calls;
    mine.bytes += times * count.bytes;
  }
}

int64_t Traffic::bytes() const {
  int64_t all = 0;
  for (const auto& [what, count] : counts_) all += count.bytes;
  return all;
}

std::string_view name_of(Traffic::Kind kind) {
  switch (kind) {
    case Traffic::Kind::all_reduce:
      return "all-reduce";
    case Traffic::Kind::all_gather:
      return "all-gather";
    case Traffic::Kind::reduce_scatter:
      return "reduce-scatter";
    case Traffic::Kind::send:
      return "send";
  }
  WEFT_CHECK(false, "no kind {} of traffic", int(kind));
}

}  // namespace weft
