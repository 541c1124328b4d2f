#include "weft/history/run_gc.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/number_locks.h"
#include "weft/base/threads.h"
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

// What a removal has left behind when it was cut off, of whatever.
bool is_removing(const fs::path& path) { return path.extension() == ".removing"; }

// Folders in a folder, in the order of their names; none of one that is not there.
std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (is_own_folder(at->path())) all.push_back(at->path());
  std::sort(all.begin(), all.end());
  return all;
}

// Run folders below a folder, at any depth, in other ones too. Throws fs::filesystem_error where it cannot look.
std::vector<std::string> runs_below(const fs::path& folder) {
  std::vector<std::string> all;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (is_own_folder(entry.path()) && is_run_folder(entry.path())) all.push_back(entry.path().string());
  return all;
}

// Where the last attempt began, if that is another host, and it has not said that it ended: it may run there, where
// locks do not tell.
std::string perhaps_runs_on(const RunFacts& r) {
  if (r.attempts.empty() || r.attempts.back().end || r.attempts.back().host == name_of_host()) return "";
  return r.attempts.back().host;
}

class GcPlanner {
 public:
  GcPlanner(const std::vector<RunFacts>& all, const GcWish& wish, GcLook look)
      : all_(all), wish_(wish), look_(look), dependents_(all) {}

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
      else if (const std::string host = perhaps_runs_on(r); !host.empty())
        plan_.notes.push_back(
            fmt::format("{}: began on host {}, and did not say that it ended: it may run there, and "
                        "is left alone; `weft runs gc` on that host looks at it",
                        r.path, in_quotes(host)));
      else
        try_to([&] { wish_.whole ? offer(r.path, r.path, "the whole run, as you said", going) : look_into(r); },
               r.path);
    }
    if (wish_.runs.empty()) offer_runs_that_went();
    if (const std::string note = dependents_.not_found(); !note.empty() && !plan_.removable.empty())
      plan_.notes.push_back(note);
    return std::move(plan_);
  }

 private:
  static bool is_in(const std::vector<std::string>& list, const std::string& path) {
    return std::find(list.begin(), list.end(), path) != list.end();
  }
  void try_to(const std::function<void()>& look, const std::string& run) {
    try {
      look();
    } catch (const std::exception& e) { plan_.notes.push_back(fmt::format("{}: is left alone: {}", run, e.what())); }
  }

  // Of the runs that are named, those that no run reads which stays, and in whose folders no other one stays.
  std::vector<std::string> whole_runs() {
    std::vector<std::string> going;
    for (const RunFacts& r : all_)
      if (is_in(wish_.runs, r.path) && r.status != RunStatus::running && r.status != RunStatus::away &&
          r.status != RunStatus::unreadable && perhaps_runs_on(r).empty())
        going.push_back(r.path);
    while (std::erase_if(going, [&, now = going](const std::string& path) { return !why_not(path, now).empty(); }) >
           0) {}
    return going;
  }

  // Why a folder stays although runs of `besides` go.
  std::vector<std::string> why_not(const fs::path& path, const std::vector<std::string>& besides) {
    std::vector<std::string> why = dependents_.of(path.string(), besides);
    // Where its checkpoints are elsewhere, by a link, those who read them there name them so.
    std::error_code error;
    const fs::path saved = path / "checkpoints", real = fs::canonical(saved, error);
    if (!error && real != saved)
      for (std::string& one : dependents_.of(real.string(), besides)) why.push_back(std::move(one));
    try {
      for (const std::string& run : runs_below(path))
        if (!is_in(besides, run)) why.push_back("the run in it, " + run);
    } catch (const fs::filesystem_error& e) { why.push_back(fmt::format("a part that cannot be seen: {}", e.what())); }
    return why;
  }

  void offer(const std::string& run, const fs::path& path, const std::string& why,
             const std::vector<std::string>& besides = {}) {
    std::error_code error;
    if (!is_own_folder(path) || fs::canonical(path, error) != path || error) return;
    if (const auto needed = why_not(path, besides); !needed.empty())
      plan_.kept.push_back({.path = path.string(), .why = fmt::format("{}", fmt::join(needed, ", "))});
    else
      plan_.removable.push_back({.run = run, .path = path.string(), .why = why, .bytes = bytes_below(path)});
  }

  void look_into(const RunFacts& r) {
    const fs::path saved = fs::path(r.path) / "checkpoints";
    std::error_code error;
    const bool leads_away = is_there(saved) && (fs::canonical(saved, error) != saved || error);
    if (leads_away)
      plan_.notes.push_back(fmt::format("{}: is a link: nothing in it is offered", saved.string()));
    else
      offer_leftovers(r), offer_checkpoints(r);
    for (const fs::path& path : folders_in(r.path))
      if (is_removing(path)) offer(r.path, path, "a removal that was cut off");
    if (r.status == RunStatus::finished)
      offer(r.path, fs::path(r.path) / "tokens", "ids of texts, which are made again if they are needed");
  }

  void offer_leftovers(const RunFacts& r) {
    const auto newest = newest_checkpoint(r.path);
    for (const fs::path& path : folders_in(fs::path(r.path) / "checkpoints")) {
      if (is_removing(path))
        offer(r.path, path, "a removal that was cut off");
      else if (step_of_leftover(path, ".tmp") >= 0)
        offer(r.path, path, "a save that was cut off");
      else if (const int64_t step = step_of_leftover(path, ".damaged");
               step >= 0 && newest && step <= step_of(*newest) && is_whole(*newest))
        offer(r.path, path, "a damaged checkpoint, and one as new is there");
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
      offer(r.path, path, fmt::format("older than the {} newest, and none that the recipe keeps", kept.latest));
  }

  // Beside runs that are known: what is left of one whose removal was cut off.
  void offer_runs_that_went() {
    std::set<fs::path> parents;
    for (const RunFacts& r : all_)
      if (r.status != RunStatus::away) parents.insert(fs::path(r.path).parent_path());
    for (const fs::path& parent : parents)
      for (const fs::path& path : folders_in(parent))
        if (is_removing(path) && (is_there(path / "run.lock") || is_there(path / "metrics.jsonl")))
          try_to([&] { offer(path.string(), path, "a run whose removal was cut off"); }, path.string());
  }

  bool is_whole(const fs::path& checkpoint) {
    const auto [at, is_new] = whole_.try_emplace(checkpoint, false);
    if (!is_new) return at->second;
    try {
      const CheckpointCheck check(checkpoint, CheckpointPart::all);
      if (check.has_manifest() && check.step() != step_of(checkpoint)) return false;
      if (look_ == GcLook::every_byte) check.judge(check.sums_of_share(0, 1, usable_cores()));
      return at->second = true;
    } catch (const FileError&) { return false; }
  }

  const std::vector<RunFacts>& all_;
  const GcWish& wish_;
  const GcLook look_;
  const Dependents dependents_;
  std::map<fs::path, bool> whole_;  // checkpoints that were looked at
  GcPlan plan_;
};

// The locks of the runs that a plan removes something of, by their folders. Which it does not get, and why, is in
// `notes`.
std::map<std::string, RunLock> lock_runs(const GcPlan& plan, std::vector<std::string>& notes) {
  std::map<std::string, RunLock> locks;
  std::set<std::string> runs;
  for (const Removable& one : plan.removable) runs.insert(one.run);
  for (const std::string& run : runs) {
    if (locks.size() == kMostGcRuns) {
      notes.push_back(fmt::format("{}: stays, like all runs behind it: {} are looked into at once; say it again", run,
                                  kMostGcRuns));
      break;
    }
    try {
      RunLock lock(run);  // throws where the run has begun to run meanwhile
      if (lock.holds())
        locks.emplace(run, std::move(lock));
      else
        notes.push_back(fmt::format("{}: stays: its file system has no locks that tell whether it runs", run));
    } catch (const std::exception& e) { notes.push_back(fmt::format("{}: stays: {}", run, e.what())); }
  }
  return locks;
}

}  // namespace

int64_t GcPlan::bytes() const {
  int64_t sum = 0;
  for (const Removable& one : removable) sum += one.bytes;
  return sum;
}

GcPlan plan_gc(const std::vector<RunFacts>& all, const GcWish& wish, GcLook look) {
  if (wish.whole && wish.runs.empty())
    throw ConfigError("--whole removes whole runs: name those, as `weft runs gc --whole RUN`");
  if (wish.keep && *wish.keep < 1) throw ConfigError("--keep: at least 1 checkpoint of each run stays");
  return GcPlanner(all, wish, look).plan();
}

GcResult remove_planned(const GcPlan& plan, const GcWish& wish, const std::function<std::vector<RunFacts>()>& all_now) {
  GcResult result;
  const std::map<std::string, RunLock> locks = lock_runs(plan, result.notes);
  if (locks.empty()) return result;
  std::vector<RunFacts> now = all_now();
  for (RunFacts& r : now)
    if (locks.contains(r.path)) r.status = status_at_rest(r);  // else it would be running: this process owns it
  GcWish of_locked = wish;
  std::erase_if(of_locked.runs, [&](const std::string& run) { return !locks.contains(run); });
  const bool is_named = !wish.runs.empty();
  const GcPlan anew = is_named && of_locked.runs.empty() ? GcPlan() : plan_gc(now, of_locked, GcLook::every_byte);
  std::set<std::string> going;
  for (const Removable& one : anew.removable)
    if (locks.contains(one.run)) going.insert(one.path);
  // A run in another one's folder stands behind that one: it goes first.
  for (auto one = plan.removable.rbegin(); one != plan.removable.rend(); ++one) {
    if (!locks.contains(one->run)) continue;
    const bool is_still = going.contains(one->path);
    if (is_still && is_removing(one->path))
      clean_left_behind(one->path);
    else if (is_still)
      remove_folder(one->path);
    if (is_still && !is_name_taken(one->path) && !is_name_taken(one->path + ".removing")) {
      ++result.num_removed;
      result.bytes += one->bytes;
    } else {
      result.notes.push_back(fmt::format(
          "{}: {}", one->path,
          is_still ? "could not be removed: is its folder writable?" : "stays: it is needed, or gone, by now"));
    }
  }
  for (const std::string& note : anew.notes)
    if (std::find(plan.notes.begin(), plan.notes.end(), note) == plan.notes.end()) result.notes.push_back(note);
  return result;
}

}  // namespace weft
