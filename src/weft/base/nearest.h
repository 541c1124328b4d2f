// The nearest of known names to one that is not known: for error messages.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Insertions, deletions, replacements and swaps of neighbours between two names.     Damerau 1964 (restricted)
int edit_distance(std::string_view a, std::string_view b);

// The known name with the fewest edits, if these are few for its length (at most a third, at least 2); empty otherwise.
std::string nearest_name(std::string_view unknown, const std::vector<std::string>& known);

}  // namespace weft
