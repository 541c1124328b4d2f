#include "weft/train/checkpoint_room.h"

#include <algorithm>

#include "weft/checkpoint/disk_space.h"
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

// How many times the run saves yet.
int64_t saves_left(const Recipe& recipe, int64_t step) {
  const int64_t last = recipe.train.train_iters, every = recipe.checkpoint.save_interval;
  if (step >= last) return 0;
  if (every == 0) return 1;
  return last / every - step / every + (last % every != 0);
}

}  // namespace

std::string judge_checkpoint_room(const Recipe& recipe, const RunPlan& plan) {
  const fs::path run = recipe.run.dir;
  const int64_t keep = recipe.checkpoint.keep_latest;
  const std::vector<fs::path> all = checkpoint_folders(run);
  const int64_t saves = saves_left(recipe, all.empty() ? 0 : step_of(all.back()));
  const std::optional<int64_t> free = free_bytes_at(run), largest = largest_file_bytes();
  if (saves == 0) return "";
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
  // What the save may remove: all that is no checkpoint, and of these all but the newest.
  int64_t room = *free + bytes_below(run / "checkpoints") - bytes_of(all);
  if (!all.empty() && keep > 0) room += bytes_of(all) - bytes_below(all.back());
  if (one.total > room)
    return say(fmt::format("a checkpoint has {} bytes, and {} are free there: free {} more, or choose another run.dir",
                           one.total, room, one.total - room),
               "until then no save will succeed");
  const int64_t wanted = one.total * (keep == 0 ? saves : std::min<int64_t>(saves, all.empty() ? 2 : 1));
  if (wanted <= room) return "";
  return fmt::format(
      "{}: a checkpoint has {} bytes, and {} are free there: {} do not fit, so that saves will fail; free {} more, or "
      "choose another run.dir{}",
      run.string(), one.total, room, keep == 0 ? fmt::format("the {} that are to be kept", saves) : "two",
      wanted - room,
      keep == 0 ? ", or a checkpoint.keep_latest" : " (an older one is removed only when its successor is whole)");
}

}  // namespace weft
