#include "weft/comm/traffic.h"

#include "weft/base/error.h"

namespace weft {

void Traffic::repeat(int64_t times) {
  WEFT_CHECK(times >= 1, "{} times", times);
  for (auto& [what, count] : counts_) {
    count.calls *= times;
    count.bytes *= times;
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
