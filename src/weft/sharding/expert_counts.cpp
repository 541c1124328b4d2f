#include "weft/sharding/expert_counts.h"

#include <algorithm>
#include <cmath>

namespace weft {

int64_t ExpertCapacity::rows(int64_t tokens, int64_t chosen, int64_t experts, int64_t ranks) const {
  const int64_t most = std::min(chosen, experts / ranks) * tokens * ranks;
  const double allowed = std::ceil(factor * double(tokens * chosen));  // may be more than any integer
  return factor == 0 || allowed >= double(most) ? most : int64_t(allowed);
}

int64_t ExpertCounts::sent(int64_t from, int64_t to) const {
  const Run theirs = experts_of(to);
  int64_t rows = 0;
  for (int64_t e = theirs.first; e < theirs.end(); ++e) rows += of(from, e);
  return rows;
}

int64_t ExpertCounts::sent(int64_t from) const {
  int64_t rows = 0;
  for (int64_t to = 0; to < ranks_; ++to) rows += sent(from, to);
  return rows;
}

int64_t ExpertCounts::most_sent() const {
  int64_t most = 0;
  for (int64_t from = 0; from < ranks_; ++from) most = std::max(most, sent(from));
  return most;
}

int64_t ExpertCounts::received(int64_t to) const {
  int64_t rows = 0;
  for (int64_t from = 0; from < ranks_; ++from) rows += sent(from, to);
  return rows;
}

int64_t ExpertCounts::fullest() const {
  int64_t fullest = 0;
  for (int64_t r = 1; r < ranks_; ++r)
    if (received(r) > received(fullest)) fullest = r;
  return fullest;
}

ExpertCounts ExpertCounts::within(int64_t capacity) const {
  ExpertCounts kept = *this;
  for (int64_t to = 0; to < ranks_; ++to) {
    if (received(to) <= capacity) continue;
    const Run theirs = experts_of(to);
    const auto for_each = [&](const auto& f) {
      for (int64_t e = theirs.first; e < theirs.end(); ++e)
        for (int64_t from = 0; from < ranks_; ++from) f(from, e);
    };
    const auto rows_at = [&](int64_t limit) {
      int64_t rows = 0;
      for_each([&](int64_t from, int64_t e) { rows += std::min(of(from, e), limit); });
      return rows;
    };
    int64_t limit = 0, beyond = capacity + 1;  // rows_at(limit) <= capacity < rows_at(beyond)
    while (beyond - limit > 1) {
      const int64_t middle = limit + (beyond - limit) / 2;
      (rows_at(middle) <= capacity ? limit : beyond) = middle;
    }
    int64_t left = capacity - rows_at(limit);
    for_each([&](int64_t from, int64_t e) {
      const bool one_more = of(from, e) > limit && left > 0;
      left -= one_more ? 1 : 0;
      kept.of(from, e) = std::min(of(from, e), limit + (one_more ? 1 : 0));
    });
  }
  return kept;
}

}  // namespace weft
