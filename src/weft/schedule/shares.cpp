#include "weft/schedule/shares.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/error.h"

namespace weft {

std::vector<int64_t> shares_by_weight(const std::vector<double>& weights, int64_t total) {
  WEFT_CHECK(!weights.empty() && total >= int64_t(weights.size()), "{} micro-batches for {} ranks", total,
             weights.size());
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> above;  // of a share, what it has more than its exact one
  std::vector<int64_t> shares;
  for (const double w : weights) {
    WEFT_CHECK(std::isfinite(w) && w > 0, "a share by the weight {}", w);
    const double exact = double(total) * (w / all);
    shares.push_back(std::max<int64_t>(1, int64_t(std::floor(exact))));
    above.push_back(double(shares.back()) - exact);
  }
  for (int64_t left = total - std::accumulate(shares.begin(), shares.end(), int64_t{0}); left > 0; --left) {
    const auto i = size_t(std::min_element(above.begin(), above.end()) - above.begin());
    ++shares[i];
    above[i] += 1;
  }
  for (int64_t over = std::accumulate(shares.begin(), shares.end(), int64_t{0}) - total; over > 0; --over) {
    size_t gives = shares.size();
    for (size_t i = 0; i < shares.size(); ++i)
      if (shares[i] > 1 && (gives == shares.size() || above[i] > above[gives])) gives = i;
    --shares[gives];
    above[gives] -= 1;
  }
  return shares;
}

std::string text_of_shares(const std::vector<int64_t>& shares) { return fmt::format("[{}]", fmt::join(shares, ", ")); }

}  // namespace weft
