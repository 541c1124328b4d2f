// A search for those who ask for nothing but the best layouts.
#pragma once
#include "weft/forecast/layout_search.h"

namespace weft {

class SmallRuns;  // layout_bounds.h

// As search_layouts, but without neighbours, front and what stays unused: in a third of the time.
SearchResult best_layouts(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                          const Profiles& profiles, const SearchSpec& spec);
// The same answer sooner, where `known` is of searches that differ in train.global_batch_size, spec and number of
// devices alone; it is added to.
SearchResult best_layouts(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                          const Profiles& profiles, const SearchSpec& spec, SmallRuns& known);

}  // namespace weft
