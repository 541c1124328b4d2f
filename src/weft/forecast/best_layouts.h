// A search for those who ask for nothing but the best layouts.
#pragma once
#include "weft/forecast/layout_search.h"

namespace weft {

// As search_layouts, but without neighbours, front and what stays unused: in a third of the time.
SearchResult best_layouts(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                          const Profiles& profiles, const SearchSpec& spec);

}  // namespace weft
