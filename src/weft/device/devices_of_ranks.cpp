#include "weft/device/devices_of_ranks.h"

#include "weft/base/error.h"

namespace weft {

DevicesOfRanks devices_of_ranks(std::span<const std::string> kinds, int first, int ranks) {
  const int count = int(kinds.size());
  WEFT_CHECK(first >= 0 && first < count && ranks > 0, "device {} of {}, for {} ranks", first, count, ranks);
  DevicesOfRanks chosen;
  std::string others;
  for (int i = 0; i < count && int(chosen.devices.size()) < ranks; ++i) {
    const int device = (first + i) % count;
    if (kinds[size_t(device)] == kinds[size_t(first)])
      chosen.devices.push_back(device);
    else
      others += fmt::format("{}GPU {} ({})", others.empty() ? "" : ", ", device, kinds[size_t(device)]);
  }
  if (!others.empty() && int(chosen.devices.size()) < ranks)
    chosen.note = fmt::format(
        "not used: {}; ranks that are threads take GPUs that are like GPU {} ({}); CUDA_VISIBLE_DEVICES chooses others",
        others, first, kinds[size_t(first)]);
  return chosen;
}

}  // namespace weft
