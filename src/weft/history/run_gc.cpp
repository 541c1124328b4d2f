#include "weft/history/run_gc.h"

#include <algorithm>
#include <map>
#include <set>

#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/number_locks.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/history/run_lineage.h"
#include "weft/recipe/recipe.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool is_own_folder(const fs::path& path) {  // no link to somewhere else
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error)) && !error;
}

// Where `path` is, as a save, a removal or a damage has named it: N of "step-N.tmp" with the suffix ".tmp"; -1: of
// none.
int64_t step_of_leftover(const fs::path& path, const char* suffix) {
  return path.extension() == suffix ? step_of(path.parent_path() / path.stem()) : -1;
}

class GcPlanner {
 public:
  GcPlanner(const std::vector<RunFacts>& all, const GcWish& wish) : all_(all), wish_(wish) {}

  GcPlan plan() {
    const std::vector<std::string> going = wish_.whole ? whole_runs() : std::vector<std::string>();
    for (const RunFacts& r : all_) {
      const bool is_named = is_in(wish_.runs, r.path);
      if (r.status == RunStatus::unreadable || r.status == RunStatus::away)
        plan_.notes.push_back(
            fmt::format("{}: is {}: it is left alone, and what it reads may not be known", r.path, name_of(r.status)));
      else if (!is_named && !wish_.runs.empty())
        continue;
      else if (r.status == RunStatus::running)
        plan_.notes.push_back(fmt::format("{}: is running: it is left alone", r.path));
      else if (wish_.whole)
        offer(r, r.path, "the whole run, as you said", going);
      else
        look_into(r);
    }
    return std::move(plan_);
  }

 private:
  static bool is_in(const std::vector<std::string>& list, const std::string& path) {
    return std::find(list.begin(), list.end(), path) != list.end();
  }

  // Of the runs that are named, those that no run reads which stays.
  std::vector<std::string> whole_runs() const {
    std::vector<std::string> going;
    for (const RunFacts& r : all_)
      if (is_in(wish_.runs, r.path) && r.status != RunStatus::running && r.status != RunStatus::away &&
          r.status != RunStatus::unreadable)
        going.push_back(r.path);
    while (std::erase_if(going, [&, now = going](const std::string& path) {
             return !dependents_of(all_, path, now).empty();
           }) > 0) {}
    return going;
  }

  void offer(const RunFacts& r, const fs::path& path, const std::string& why,
             const std::vector<std::string>& besides = {}) {
    const auto dependents = dependents_of(all_, path.string(), besides);
    if (!dependents.empty())
      plan_.kept.push_back({.path = path.string(), .why = fmt::format("{}", fmt::join(dependents, ", "))});
    else if (is_own_folder(path))
      plan_.removable.push_back({.run = r.path, .path = path.string(), .why = why, .bytes = bytes_below(path)});
  }

  void look_into(const RunFacts& r) {
    try {
      offer_leftovers(r);
      offer_checkpoints(r);
      if (r.status == RunStatus::finished)
        offer(r, fs::path(r.path) / "tokens", "ids of texts, which are made again if they are needed");
    } catch (const std::exception& e) { plan_.notes.push_back(fmt::format("{}: is left alone: {}", r.path, e.what())); }
  }

  void offer_leftovers(const RunFacts& r) {
    const auto newest = newest_checkpoint(r.path);
    std::error_code error;
    std::set<fs::path> entries;
    for (fs::directory_iterator at(fs::path(r.path) / "checkpoints", error); !error && at != fs::directory_iterator();
         at.increment(error))
      entries.insert(at->path());
    for (const fs::path& path : entries) {
      if (step_of_leftover(path, ".tmp") >= 0)
        offer(r, path, "a save that was cut off");
      else if (step_of_leftover(path, ".removing") >= 0)
        offer(r, path, "a removal that was cut off");
      else if (const int64_t step = step_of_leftover(path, ".damaged");
               step >= 0 && newest && step <= step_of(*newest) && is_whole(*newest))
        offer(r, path, "a damaged checkpoint, and one as new is there");
    }
  }

  void offer_checkpoints(const RunFacts& r) {
    const std::vector<fs::path> all = all_checkpoints(r.path);
    if (all.empty()) return;
    Recipe recipe = parse_recipe_file((fs::path(r.path) / "recipe.toml").string(), {});
    recipe.run.dir = r.path;  // as the run called it, it may be seen from another folder
    KeptCheckpoints kept = kept_checkpoints(recipe);
    if (wish_.keep && r.status == RunStatus::finished) {
      kept.latest = *wish_.keep;
      for (const ScoredCheckpoint& best : best_checkpoints(r.path, 1)) kept.whatever_age.push_back(best.path);
    }
    const std::vector<fs::path> surplus = surplus_of(all, kept);
    if (surplus.empty()) return;
    if (!is_whole(all.back())) {
      plan_.notes.push_back(fmt::format("{}: is not whole: older checkpoints are left alone", all.back().string()));
      return;
    }
    for (const fs::path& path : surplus)
      offer(r, path, fmt::format("older than the {} newest, and none that the recipe keeps", kept.latest));
  }

  // All but the numbers of its tensors, which are not read here.
  static bool is_whole(const fs::path& checkpoint) {
    try {
      CheckpointCheck(checkpoint, CheckpointPart::all);
      return true;
    } catch (const FileError&) { return false; }
  }

  const std::vector<RunFacts>& all_;
  const GcWish& wish_;
  GcPlan plan_;
};

// The plan for one run, as things are now.
std::vector<Removable> planned_now(const std::vector<RunFacts>& all, const GcWish& wish, const std::string& run) {
  GcWish of_one = wish;
  if (!wish.whole) of_one.runs = {run};
  std::vector<RunFacts> now = all;
  for (RunFacts& r : now)
    if (r.path == run) r = read_run_facts(run);
  for (RunFacts& r : now)
    if (r.path == run && r.status == RunStatus::running) {  // by this process, which owns it
      const auto before = std::find_if(all.begin(), all.end(), [&](const RunFacts& a) { return a.path == run; });
      r.status = before->status;
    }
  return plan_gc(now, of_one).removable;
}

}  // namespace

int64_t GcPlan::bytes() const {
  int64_t sum = 0;
  for (const Removable& one : removable) sum += one.bytes;
  return sum;
}

GcPlan plan_gc(const std::vector<RunFacts>& all, const GcWish& wish) {
  if (wish.whole && wish.runs.empty())
    throw ConfigError("--whole removes whole runs: name those, as `weft runs gc --whole RUN`");
  if (wish.keep && *wish.keep < 1) throw ConfigError("--keep: at least 1 checkpoint of each run stays");
  return GcPlanner(all, wish).plan();
}

GcResult remove_planned(const GcPlan& plan, const std::vector<RunFacts>& all, const GcWish& wish) {
  GcResult result;
  std::map<std::string, std::vector<Removable>> by_run;
  for (const Removable& one : plan.removable) by_run[one.run].push_back(one);
  for (const auto& [run, removable] : by_run) {
    try {
      const RunLock lock(run);  // throws where the run has begun to run meanwhile
      const std::vector<Removable> now = planned_now(all, wish, run);
      for (const Removable& one : removable) {
        const bool is_still =
            std::any_of(now.begin(), now.end(), [&](const Removable& n) { return n.path == one.path; });
        if (is_still) remove_folder(one.path);
        if (is_still && !is_name_taken(one.path) && !is_name_taken(one.path + ".removing")) {
          ++result.num_removed;
          result.bytes += one.bytes;
        } else {
          result.notes.push_back(fmt::format(
              "{}: {}", one.path,
              is_still ? "could not be removed: is its folder writable?" : "stays: it is needed, or gone, by now"));
        }
      }
    } catch (const std::exception& e) { result.notes.push_back(fmt::format("{}: stays: {}", run, e.what())); }
  }
  return result;
}

}  // namespace weft
