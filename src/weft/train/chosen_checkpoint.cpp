#include "weft/train/chosen_checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>

#include "weft/base/descriptor.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/mapped_file.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/comm/agree.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/run_folder.h"
#include "weft/train/run_length.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void require_checkpoint(const fs::path& path) {
  if (is_there(path / "weft" / "state.json")) return;
  const auto inside = newest_checkpoint(path);
  throw ConfigError(fmt::format(
      "--from {}: {}", path.string(),
      inside ? fmt::format("is a run's folder: name one of its checkpoints, as {}", inside->string())
      : is_there(path / "config.json") ? "is a model without the state of a run; model.path and model.init = "
                                         "\"pretrained\" begin with its weights"
      : is_there(path)                 ? "is no checkpoint: there is no weft/state.json in it"
                                       : "no such folder"));
}

void require_no_run(const fs::path& run) {
  std::error_code ignored;
  const fs::path metrics = run / "metrics.jsonl";
  if (!newest_checkpoint(run) && !(is_there(metrics) && fs::file_size(metrics, ignored) > 0)) return;
  throw ConfigError(fmt::format(
      "run.dir = \"{}\" has a run already: --from begins one in a new folder, as run.dir={}-2; without --from "
      "the run that is there goes on",
      run.string(), run.string()));
}

// This rank's part of the bytes of a file, synced.
void copy_share(const fs::path& from, const fs::path& to, const Communicator& ranks) {
  const MappedFile file(from);
  const auto size = int64_t(file.bytes().size()), n = int64_t(ranks.size()), r = int64_t(ranks.rank());
  const int64_t end = size * (r + 1) / n;
  const Descriptor fd(::open(to.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  bool good = fd >= 0;
  for (int64_t at = size * r / n; good && at < end;) {
    constexpr int64_t kMost = 1 << 30;
    const ssize_t written = ::pwrite(fd, file.bytes().data() + at, size_t(std::min(end - at, kMost)), at);
    good = written > 0 || (written < 0 && errno == EINTR);
    at += std::max<ssize_t>(written, 0);
  }
  good = good && ::fsync(fd) == 0;
  if (!good)
    throw FileError(fmt::format("{}: cannot be copied to {}: {}", from.string(), to.string(), std::strerror(errno)));
}

// Gives the files of a checkpoint second names in `to`, and copies small ones. Returns those that are left to be
// copied, with a line feed behind each.
std::string link_in(const fs::path& checkpoint, const fs::path& to) {
  std::string left;
  for (const auto& entry : fs::recursive_directory_iterator(checkpoint)) {
    if (!entry.is_regular_file()) continue;
    const fs::path name = entry.path().lexically_relative(checkpoint);
    fs::create_directories((to / name).parent_path());
    std::error_code cannot;
    if (name.extension() != ".safetensors")
      fs::copy_file(entry.path(), to / name);
    else if (fs::create_hard_link(entry.path(), to / name, cannot); cannot)  // its bytes are never changed
      left += name.string() + "\n";
  }
  return left;
}

}  // namespace

void judge_chosen(const Recipe& recipe, const fs::path& checkpoint, Communicator& ranks, int num_threads) {
  const bool leads = ranks.rank() == 0;
  if (leads) {
    require_checkpoint(checkpoint);
    require_no_run(recipe.run.dir);
  }
  require_whole(checkpoint, CheckpointPart::all, ranks, num_threads);
  if (!leads) return;
  refuse_another_recipe(recipe, checkpoint / "weft" / "recipe.toml", fmt::format("--from {}", checkpoint.string()));
  require_steps_left(recipe, read_progress(checkpoint).step, checkpoint);
}

void take_chosen(const Recipe& recipe, const fs::path& checkpoint, Communicator& ranks) {
  const bool leads = ranks.rank() == 0;
  const fs::path to = fs::path(recipe.run.dir) / "checkpoints" / fmt::format("step-{}", read_progress(checkpoint).step);
  std::optional<DurableFolder> folder;
  std::string left;
  agree(ranks, [&] {
    if (!leads) return;
    require_no_run(recipe.run.dir);  // now that nobody else changes it
    fs::create_directories(to.parent_path());
    left = link_in(checkpoint, folder.emplace(to).building());
  });
  std::istringstream names(first_text(ranks, left));
  for (std::string name; std::getline(names, name);)
    agree(ranks, [&] { copy_share(checkpoint / name, DurableFolder::building_name(to) / name, ranks); });
  agree(ranks, [&] {
    if (leads) folder->commit();
  });
}

}  // namespace weft
