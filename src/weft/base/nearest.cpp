#include "weft/base/nearest.h"

#include <algorithm>

namespace weft {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = int(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

std::string nearest_name(std::string_view unknown, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 100;  // longer is no slip of the keyboard
  if (unknown.size() > kLongest) return "";
  std::string best;
  int least = std::max<int>(2, int(unknown.size()) / 3) + 1;
  for (const std::string& name : known) {
    const int d = edit_distance(unknown, name);
    if (d < least) least = d, best = name;
  }
  return best;
}

std::optional<int64_t> nearest_where(int64_t number, int64_t most, const std::function<bool(int64_t)>& fits) {
  const int64_t middle = std::clamp<int64_t>(number, 1, std::max<int64_t>(most, 1));
  for (int64_t away = 0; away < most; ++away) {
    if (middle - away >= 1 && middle - away <= most && fits(middle - away)) return middle - away;
    if (middle + away <= most && fits(middle + away)) return middle + away;
  }
  return {};
}

}  // namespace weft
