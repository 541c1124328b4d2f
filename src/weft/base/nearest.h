// For error messages: the known name nearest to an unknown one, and the valid number nearest to an invalid one.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Insertions, deletions, replacements and swaps of neighbours between two names.     Damerau 1964 (restricted)
int edit_distance(std::string_view a, std::string_view b);

// The known name with the fewest edits, if these are few for its length (at most a third, at least 2); empty otherwise.
std::string nearest_name(std::string_view unknown, const std::vector<std::string>& known);

// The number of 1 .. most nearest to `number` that fits, the smaller of two; none if none fits. Takes `most` steps.
std::optional<int64_t> nearest_where(int64_t number, int64_t most, const std::function<bool(int64_t)>& fits);

}  // namespace weft
