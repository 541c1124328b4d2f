// A run that is one of several islands (docs/islands.md): its part of the exchange, as its Trainer has it.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "weft/islands/island_member.h"
#include "weft/recipe/islands.h"
#include "weft/train/rank_run.h"

namespace weft {

struct IslandSetup {
  Islands settings;
  std::string secret;  // of the first rank; others need none
};

OuterSpec outer_spec_of(const Islands& islands);
// As hub and islands say what they exchange (Hello::model).
std::string model_text(const OuterLayout& layout);

// Of one rank. The outer weights and momentum lie beside the plan, in the host's memory: bytes() of them.
class JoinedIsland {
 public:
  struct Spec {
    const IslandSetup& setup;
    const Recipe& recipe;
    RankRun& rank;
    std::string data;  // fingerprint of the order of the samples
    // Goes on from this checkpoint; none: the run begins. Throws FileError where it is of no island.
    std::optional<std::filesystem::path> checkpoint;
    std::function<void(const std::string&)> tell;
    std::function<bool()> stopped;
  };
  // The weights are there.
  explicit JoinedIsland(Spec spec);

  IslandMember& member() { return *member_; }
  const OuterState& state() const { return state_; }

 private:
  OuterLayout layout_;
  OuterState state_;
  std::optional<IslandMember> member_;
};

}  // namespace weft
