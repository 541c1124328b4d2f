// Which devices of a host a process's ranks (its threads) use.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace weft {

struct DevicesOfRanks {
  std::vector<int> devices;  // rank r has devices[r % size]: neighbours, and so those of tp, have different ones
  std::string note;          // which it passed over, and why; empty: none
};
// `kinds`: what each device of the host is, in words that are equal where devices are ("NVIDIA H200, compute capability
// 9.0"). The ranks take `first` and those that follow it, round to the ones before it, at most one each, and only of
// its kind: what they do must take all of them as long, and have the same bits.
DevicesOfRanks devices_of_ranks(std::span<const std::string> kinds, int first, int ranks);

}  // namespace weft
