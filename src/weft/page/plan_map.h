// What a recipe's plan says of memory and tensors on every rank, for the page (docs/formats/page.md, "/api/plan").
#pragma once
#include <atomic>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "weft/ops/backend.h"
#include "weft/recipe/recipe.h"

namespace weft {

// Ranks and tensors of the model that is trained; more are not told one by one.
inline constexpr int kMostMapRanks = 4096;
inline constexpr size_t kMostMapTensors = 20'000;
inline constexpr int64_t kMostMapPairs = 2'000'000;  // of a rank and a tensor: 20 MB of text

// Of the steps that take most memory. Throws as plan_layout does, and Error where `stops` is true: that is looked at
// behind plan_layout, and at each rank.
nlohmann::ordered_json plan_map(const Recipe& recipe, const WorkspaceModel& workspace, const std::atomic<bool>& stops);

}  // namespace weft
