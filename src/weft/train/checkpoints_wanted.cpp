#include "weft/train/checkpoints_wanted.h"

#include <algorithm>
#include <set>

#include "weft/base/error.h"
#include "weft/train/checkpoint_folders.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool is_among(const std::vector<fs::path>& all, const fs::path& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// The steps behind `step` whose checkpoints the run keeps for its phases. What is older and not there stays away.
std::set<int64_t> later_steps(const Recipe& recipe, int64_t step, const std::vector<fs::path>& for_phases) {
  const int64_t last = recipe.train.train_iters;
  std::set<int64_t> steps;
  for (const fs::path& one : for_phases)
    if (const int64_t of = step_of(one); of > step && (last == 0 || of < last)) steps.insert(of);
  return steps;
}

}  // namespace

int64_t times_left(const Recipe& recipe, int64_t step, int64_t every) {
  const int64_t last = recipe.train.train_iters;
  if (last == 0) return every == 0 ? 1 : 2;
  if (step >= last) return 0;
  if (every == 0) return 1;
  return last / every - step / every + (last % every != 0);
}

WantedCheckpoints wanted_checkpoints(const Recipe& recipe, const CheckpointsThere& there) {
  const int64_t step = there.staying.empty() ? 0 : step_of(there.staying.back());
  const int64_t every = recipe.checkpoint.save_interval, best = recipe.checkpoint.keep_best;
  const std::set<int64_t> later = later_steps(recipe, step, there.for_phases);
  const auto num_later = int64_t(later.size());
  const int64_t saves = times_left(recipe, step, every);
  if (recipe.checkpoint.keep_latest == 0 && recipe.train.train_iters > 0) {
    const int64_t all =
        saves + std::count_if(later.begin(), later.end(), [&](int64_t of) { return every == 0 || of % every != 0; });
    return {all, fmt::format("the {} that are to be kept", all)};
  }
  const auto num_others = int64_t(std::count_if(there.staying.begin(), there.staying.end(),
                                                [&](const fs::path& one) { return !is_among(there.for_phases, one); }));
  if (best > 1) {  // the best, of which the newest may be one, while the next is written
    const int64_t most =
        recipe.train.train_iters == 0 ? best + 1 : saves + times_left(recipe, step, recipe.train.eval_interval);
    const int64_t count = num_later + std::clamp<int64_t>(best + 1 - num_others, 1, most);
    const std::string phases = num_later == 0 ? "" : fmt::format(", {} that phases keep", num_later);
    return {count,
            fmt::format("{} (checkpoint.keep_best = {}{}, and the one that is being saved)", count, best, phases)};
  }
  // Most are there at once behind the last that a phase keeps: these, the newest and the one that is being written.
  const int64_t behind = std::min<int64_t>(times_left(recipe, later.empty() ? step : *later.rbegin(), every), 2);
  const bool newest_goes = !there.staying.empty() && !is_among(there.for_phases, there.staying.back());
  const int64_t count = std::max<int64_t>(1, num_later + behind - (newest_goes ? 1 : 0));
  return {count, num_later == 0 ? "two" : fmt::format("{} (phases keep {} of them)", count, num_later)};
}

}  // namespace weft
