// The layouts within a layout: what is left when axes and choices of it are taken away.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

// The same training on one rank, with nothing computed again.
Recipe one_rank_of(Recipe recipe);
// "dp 2, tp 2 with sequence parallelism, ZeRO stage 1"; "one rank".
std::string layout_words(const Recipe& recipe);

// The smallest layout within `recipe` for which `differs` still holds, as it does for `recipe` itself: everything that
// can be taken away is. `differs` is none for a layout that cannot run.
struct SmallestLayout {
  Recipe recipe;
  struct Tried {
    std::string without;  // what was taken away: "tp", "ZeRO", "dp beyond 2"
    std::string left;     // the layout that was run
    std::optional<bool> differs;
  };
  std::vector<Tried> tried;  // in order
};
SmallestLayout smallest_layout(const Recipe& recipe, const std::function<std::optional<bool>(const Recipe&)>& differs);

}  // namespace weft
