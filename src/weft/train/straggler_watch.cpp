#include "weft/train/straggler_watch.h"

#include <algorithm>
#include <utility>

#include "weft/base/error.h"

namespace weft {

StragglerWatch::StragglerWatch(std::vector<int> alike, std::vector<double> work)
    : alike_(std::move(alike)), slow_since_(alike_.size(), kNever) {
  set_work(std::move(work));
}

void StragglerWatch::set_work(std::vector<double> work) {
  work_ = std::move(work);
  if (work_.empty()) work_.assign(alike_.size(), 1);
  WEFT_CHECK(work_.size() == alike_.size(), "the work of {} ranks, and {} ranks", work_.size(), alike_.size());
}

// Of one unit of work. The lower one of two in the middle: beside one other, the slow rank is compared with that. 0:
// nobody is alike.
double StragglerWatch::median_of(int alike, std::span<const double> compute_s) const {
  std::vector<double> times;
  for (size_t r = 0; r < alike_.size(); ++r)
    if (alike_[r] == alike) times.push_back(compute_s[r] / work_[r]);
  if (times.size() < 2) return 0;
  const auto middle = times.begin() + int64_t(times.size() - 1) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

std::vector<StragglerWatch::Straggler> StragglerWatch::add(int64_t step, std::span<const double> compute_s,
                                                           std::span<const double> wait_s) {
  std::vector<Straggler> news;
  const int64_t first = step - kWindow + 1;
  for (size_t r = 0; r < alike_.size(); ++r) {
    const double median_s = median_of(alike_[r], compute_s) * work_[r];
    const bool slow = median_s > 0 && compute_s[r] > kSlower * median_s;
    int64_t& since = slow_since_[r];
    const bool was_told = since != kNever && first - since >= kSteps;
    Straggler now{.rank = int(r), .compute_s = compute_s[r], .median_s = median_s, .wait_s = wait_s[r]};
    if (slow && since == kNever) since = first;
    now.since_step = since;
    if (!slow) since = kNever;
    now.is_over = was_told && !slow;
    if (now.is_over || (slow && !was_told && step - since + 1 >= kSteps)) news.push_back(now);
  }
  return news;
}

}  // namespace weft
