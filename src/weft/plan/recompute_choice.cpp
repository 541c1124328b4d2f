#include "weft/plan/recompute_choice.h"

#include <fmt/format.h>

namespace weft {

std::string_view name_of(BlockRecompute again) {
  constexpr std::array<std::string_view, kBlockRecomputes> kNames{"none", "activations", "selective", "full"};
  return kNames[size_t(again)];
}

std::string to_string(const RecomputeChoice& choice) {
  const bool large = choice.budget >= int64_t{1} << 30;
  const double unit = double(int64_t{1} << (large ? 30 : 20));
  std::string text;
  for (size_t stage = 0; stage < choice.stages.size(); ++stage) {
    const RecomputeChoice::Stage& s = choice.stages[stage];
    std::string blocks = s.counts[0] == 1 ? "1 block keeps all" : fmt::format("{} blocks keep all", s.counts[0]);
    for (size_t level = 1; level < kBlockRecomputes; ++level)
      if (s.counts[level] > 0) blocks += fmt::format(", {} {}", s.counts[level], name_of(BlockRecompute(level)));
    text += fmt::format("stage {}: {}; peak {:.2f} of {:.2f} {}, +{:.1f} % arithmetic\n", stage, blocks,
                        double(s.bytes) / unit, double(choice.budget) / unit, large ? "GiB" : "MiB",
                        s.flops > 0 ? 100 * s.again / s.flops : 0.0);
  }
  return text;
}

}  // namespace weft
