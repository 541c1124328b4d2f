#include "weft/train/checkpoint_room.h"

#include <algorithm>

#include "weft/checkpoint/disk_space.h"
#include "weft/train/best_checkpoints.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

int64_t bytes_of(const std::vector<fs::path>& folders) {
  int64_t bytes = 0;
  for (const fs::path& folder : folders) bytes += bytes_below(folder);
  return bytes;
}

// How many of the steps that are left are multiples of `every`, or the last. Of a run by epochs it is not known yet how
// many steps there are: then it is as if there were some.
int64_t times_left(const Recipe& recipe, int64_t step, int64_t every) {
  const int64_t last = recipe.train.train_iters;
  if (last == 0) return every == 0 ? 1 : 2;
  if (step >= last) return 0;
  if (every == 0) return 1;
  return last / every - step / every + (last % every != 0);
}

// How many checkpoints beside those that stay the run comes to have at once.
struct Wanted {
  int64_t count;
  std::string name;
};
Wanted wanted_of(const Recipe& recipe, int64_t step, int64_t num_staying) {
  const int64_t saves = times_left(recipe, step, recipe.checkpoint.save_interval);
  const int64_t best = recipe.checkpoint.keep_best;
  if (recipe.checkpoint.keep_latest == 0 && recipe.train.train_iters > 0)
    return {saves, fmt::format("the {} that are to be kept", saves)};
  if (best > 1) {  // the best, of which the newest may be one, while the next is written
    const int64_t most =
        recipe.train.train_iters == 0 ? best + 1 : saves + times_left(recipe, step, recipe.train.eval_interval);
    const int64_t count = std::clamp<int64_t>(best + 1 - num_staying, 1, most);
    return {count, fmt::format("{} (checkpoint.keep_best = {}, and the one that is being saved)", count, best)};
  }
  return {std::min<int64_t>(saves, num_staying > 0 ? 1 : 2), "two"};
}

}  // namespace

std::string judge_checkpoint_room(const Recipe& recipe, const RunPlan& plan) {
  const fs::path run = recipe.run.dir;
  const int64_t keep = recipe.checkpoint.keep_latest;
  const std::vector<fs::path> all = checkpoint_folders(run);
  const int64_t step = all.empty() ? 0 : step_of(all.back());
  const std::optional<int64_t> free = free_bytes_at(run), largest = largest_file_bytes();
  if (times_left(recipe, step, 0) == 0) return "";
  const CheckpointBytes one = checkpoint_bytes(plan.model, *plan.optimizer, plan.step.precision.stat);
  const auto say = [&](const std::string& what, const char* then) {
    const std::string text = fmt::format("{}: {}", run.string(), what);
    if (all.empty()) throw FileError(fmt::format("{}; nothing of this run could be saved", text));
    return fmt::format("{}; {}", text, then);
  };
  if (largest && one.largest_file > *largest)
    return say(fmt::format("a checkpoint has a file of {} bytes, this process may write files of {}: raise ulimit -f",
                           one.largest_file, *largest),
               "until then no save will succeed");
  if (!free) return "";
  // What a save may remove: everything that is no checkpoint, and checkpoints other than the newest and the best.
  const std::vector<fs::path> may_go =
      keep > 0 ? surplus_of(all, {.latest = 1, .best = kept_checkpoints(recipe).best}) : std::vector<fs::path>();
  const int64_t room = *free + bytes_below(run / "checkpoints") - bytes_of(all) + bytes_of(may_go);
  if (one.total > room)
    return say(fmt::format("a checkpoint has {} bytes, and {} are free there: free {} more, or choose another run.dir",
                           one.total, room, one.total - room),
               "until then no save will succeed");
  const Wanted wanted = wanted_of(recipe, step, int64_t(all.size() - may_go.size()));
  if (one.total * wanted.count <= room) return "";
  return fmt::format(
      "{}: a checkpoint has {} bytes, and {} are free there: {} do not fit, so that saves will fail; free {} more, or "
      "choose another run.dir{}",
      run.string(), one.total, room, wanted.name, one.total * wanted.count - room,
      keep == 0 ? ", or a checkpoint.keep_latest" : " (an older one is removed only when its successor is whole)");
}

}  // namespace weft
