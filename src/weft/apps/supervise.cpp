// `weft supervise`: a training run that goes on by itself.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "weft/apps/attempts.h"
#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/event_log.h"
#include "weft/apps/file_modes.h"
#include "weft/apps/fleet.h"
#include "weft/apps/launch.h"
#include "weft/apps/next_ranks.h"
#include "weft/apps/orphans.h"
#include "weft/apps/run_queue.h"
#include "weft/base/error.h"
#include "weft/base/number_locks.h"
#include "weft/plan/layout.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/records/clock.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/run_access.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr double kQueueLook_s = 0.2;

class Supervisor {
 public:
  Supervisor(const SuperviseOptions& o, const Recipe& recipe)
      : o_(o),
        recipe_(recipe),
        run_(recipe.run.dir),
        events_(recipe.run.dir),
        limits_{.least_s = o.hang_s, .first_s = 60 * o.first_minutes},
        fleet_(recipe) {
    command_ = {this_command()[0], "train"};
    if (o.force) command_.push_back("--force");
    command_.push_back(o.recipe);
    command_.insert(command_.end(), o.overrides.begin(), o.overrides.end());
    if (!recipe.run.queue.empty()) queue_.emplace(recipe.run.queue, recipe.run.dir, recipe.run.priority);
  }

  // Returns the exit status.
  int supervise() {
    reclaim();
    Attempts attempts(o_.attempts);
    for (int number = 1;; ++number) {
      const std::vector<fs::path> before = checkpoint_folders(run_);
      begin_layout(step_of_last(before));
      if (!settle_ranks_and_place(number > 1)) return stop_between();
      tell_start(number, step_of_last(before));
      const auto crashes = crashes_in(run_);
      AttemptEnd end = run_attempt(spec(number), limits_, requests_);
      auto first = fs::file_time_type::max();  // of several, the one that was written first
      for (const auto& [file, time] : crashes_in(run_))
        if (crashes.count({file, time}) == 0 && time < first) end.crash = file.string(), first = time;
      end.to_yield = give_way();
      const std::vector<fs::path> now = checkpoint_folders(run_);
      end.to_move = end.to_move || (has_new(before, now) && changes_layout_at(recipe_, end.last.step));
      const int64_t after = step_of_last(now);
      const Attempts::Verdict verdict = attempts.judge(end, has_new(before, now));
      tell_end(number, end, after);
      if (verdict.again) {
        say(fmt::format("{}; starting again, the newest checkpoint is of step {}{}", reason_of(end), after,
                        verdict.delay_s > 0 ? fmt::format(" in {:g} s", verdict.delay_s) : ""));
        if (wait(verdict.delay_s)) continue;
        return stop_between();
      }
      if (verdict.status == kExitNoProgress)
        return stop(verdict.status, fmt::format("{} attempts have come to nothing; the last: {}",
                                                attempts.without_progress(), reason_of(end)));
      return stop(verdict.status, reason_of(end));
    }
  }

 private:
  // The stacks of crashes (HangWatch), and when they were written.
  static std::set<std::pair<fs::path, fs::file_time_type>> crashes_in(const fs::path& run) {
    std::set<std::pair<fs::path, fs::file_time_type>> all;
    std::error_code error, gone;
    for (fs::directory_iterator at(run / "crash", error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == ".txt") all.emplace(at->path(), at->last_write_time(gone));
    return all;
  }
  static int64_t step_of_last(const std::vector<fs::path>& all) { return all.empty() ? 0 : step_of(all.back()); }
  // A run that went on from before a damaged checkpoint saves older steps than that one's.
  static bool has_new(const std::vector<fs::path>& before, const std::vector<fs::path>& now) {
    return std::any_of(now.begin(), now.end(),
                       [&](const fs::path& p) { return std::find(before.begin(), before.end(), p) == before.end(); });
  }
  // Of the phase with which the run goes on.
  void begin_layout(int64_t steps_done) {
    Recipe now = in_layout_at(recipe_, steps_done);
    if (now == recipe_) return;
    recipe_ = std::move(now);
    ranks_.reset();
    const std::string words = words_of_layout(recipe_);
    const std::string why = fmt::format("of the phase with step {}", steps_done);
    const auto ranks = int64_t(mesh_sizes_of(recipe_).world());
    events_.add("layout", {{"ranks", ranks}, {"layout", words}, {"hosts", ""}, {"reason", why}});
    say(fmt::format("{}, it has {} rank{} as {}", why, ranks, ranks == 1 ? "" : "s", words));
  }
  static void say(const std::string& line) { std::cerr << "weft supervise: " << line << std::endl; }
  std::function<bool()> asked() {
    return [this] {
      requests_.wait_ms(0);
      return requests_.asked();
    };
  }

  AttemptSpec spec(int number) {
    AttemptSpec attempt{.command = command_, .number = number, .strangers = strangers_, .hang_s = o_.hang_s};
    attempt.is_to_move = [this] { return is_to_yield() || is_to_move(); };
    if (!ranks_) return attempt;
    const std::vector<std::string> settings = settings_between(recipe_, ranks_->layout.recipe);
    attempt.command.insert(attempt.command.end(), settings.begin(), settings.end());
    if (!ranks_->hosts.empty()) attempt.hosts = to_string(ranks_->hosts);
    return attempt;
  }

  // Finds out which ranks there are, and waits for their place on this machine; by then they may be others. False:
  // asked to stop meanwhile.
  bool settle_ranks_and_place(bool after_an_attempt) {
    while (settle_ranks(after_an_attempt)) {
      if (!queue_ || queue_->has(cores_here())) return true;
      if (!wait_for_place(cores_here())) return false;
    }
    return false;
  }
  // That the next attempt takes of this machine, in the queue.
  int64_t cores_here() const {
    const Recipe& next = ranks_ ? ranks_->layout.recipe : recipe_;
    const int64_t all = queue_->self().of_cores;  // not what this process may use by now: the place is of these
    if (next.run.threads == 0 || next.run.backend == BackendKind::cuda) return all;
    const bool on_hosts = ranks_ && !ranks_->hosts.empty();  // this one first
    const int64_t ranks = on_hosts ? ranks_->hosts[0].slots : int64_t(mesh_sizes_of(next).world());
    return std::clamp<int64_t>(ranks * next.run.threads, 1, all);
  }
  bool wait_for_place(int64_t cores) {
    const double began = now_s();
    bool told = false;
    while (!try_place(cores)) {
      if (!std::exchange(told, true)) tell_queued();
      if (!wait(kQueueLook_s)) return false;
    }
    events_.add("placed", {{"cores", queue_->self().cores}, {"waited_s", now_s() - began}});
    if (told) say(fmt::format("has its place in the queue, after {:.0f} s", now_s() - began));
    return true;
  }
  bool try_place(int64_t cores) {
    try {
      const bool placed = queue_->try_take(cores);
      tell_reclaimed();
      queue_problem_.clear();
      return placed;
    } catch (const FileError& e) { tell_queue_problem(e.what()); }
    return false;
  }
  // Whether the run that goes on is to save, for another of higher priority.
  bool is_to_yield() {
    if (!queue_ || now_s() < next_queue_look_s_) return false;
    next_queue_look_s_ = now_s() + kQueueLook_s;
    try {
      yields_to_ = queue_->who_needs_it();
      tell_reclaimed();
      queue_problem_.clear();
    } catch (const FileError& e) { tell_queue_problem(e.what()); }
    if (!yields_to_) return false;
    events_.add("yielding", {{"to", yields_to_->run}, {"priority", yields_to_->priority}});
    say(fmt::format("gives way to {}, of priority {}: it saves, and waits", yields_to_->run, yields_to_->priority));
    return true;
  }
  // After an attempt. Whether it was to.
  bool give_way() {
    if (!yields_to_) return false;
    queue_->give_back();
    yields_to_.reset();
    return true;
  }
  void tell_queued() {
    std::vector<std::string> before;
    for (const QueuedRun& r : queue_->runs()) {
      if (r.run == queue_->self().run) break;
      before.push_back(r.run);
    }
    const QueuedRun& self = queue_->self();
    events_.add("queued",
                {{"queue", recipe_.run.queue}, {"priority", self.priority}, {"cores", self.cores}, {"behind", before}});
    say(fmt::format("waits in the queue {} for {} core{}, behind {}", recipe_.run.queue, self.cores,
                    self.cores == 1 ? "" : "s",
                    before.empty() ? "nobody" : fmt::format("{}", fmt::join(before, ", "))));
  }
  void tell_queue_problem(const std::string& problem) {
    if (std::exchange(queue_problem_, problem) != problem) say(problem + "; the queue is looked at again");
  }
  void tell_reclaimed() {
    for (const QueuedRun& r : queue_->take_reclaimed()) {
      events_.add("reclaimed", {{"place_of", r.run}, {"process", r.process}});
      say(fmt::format("takes {} out of the queue: {}", r.run,
                      r.process > 0 ? fmt::format("its supervisor, process {}, is gone", r.process)
                                    : "it cannot be read, and no process has it"));
    }
  }
  // What runs that were killed have left on this machine.
  void reclaim() {
    OrphanPlaces places;
    std::error_code error;
    if (const fs::path temporary = fs::temp_directory_path(error); !error) places.temporary = temporary;
    const Orphans found = reclaim_orphans(places);
    RunLock::refuse_held(run_);  // what is left there now is no orphan: its events are not this one's to write
    if (found.processes.empty() && found.files.empty()) return;
    events_.add("reclaimed", {{"processes", found.processes}, {"files", found.files}});
    for (const auto process : found.processes)
      say(fmt::format("has ended process {}, of a run whose supervisor is gone", process));
    for (const std::string& file : found.files) say(fmt::format("has removed {}, of ranks that are gone", file));
  }

  // Finds out which ranks there are, and waits until they are enough. False: asked to stop meanwhile.
  bool settle_ranks(bool after_an_attempt) {
    bool told = false;
    while (fleet_.tells()) {
      const std::vector<std::string> lost =
          after_an_attempt || told ? fleet_.find_lost(asked()) : std::vector<std::string>();
      const std::optional<Available> available = fleet_.ask(asked());
      if (!available || requests_.asked()) return false;
      tell_fleet(*available, lost);
      if (std::optional<NextRanks> next = next_for(*available)) {
        tell_layout(*next, *available);
        ranks_ = std::move(next);
        return true;
      }
      if (queue_) queue_->give_back();
      if (!std::exchange(told, true)) tell_waiting(*available);
      constexpr double kLeast_s = 0.2;
      if (!wait(std::max(kLeast_s, recipe_.fleet.poll_seconds))) return false;
    }
    return true;
  }
  // What cannot be judged, as a file is away for a moment, stays as it was.
  std::optional<NextRanks> next_for(const Available& available) const {
    try {
      return next_ranks(recipe_, available, memory_, o_.force);
    } catch (const Error& e) {
      if (!ranks_) throw;
      say(e.what());
      return ranks_;
    }
  }
  // Whether the run that goes on is to save and go on elsewhere.
  bool is_to_move() {
    if (!fleet_.has_changed()) return false;
    const std::optional<NextRanks> next = next_for(fleet_.ask_last());
    return !next || !is_same_start(*next, *ranks_);
  }

  void tell_fleet(const Available& available, const std::vector<std::string>& lost) {
    nlohmann::json all{{"available", available.ranks}};
    if (!available.hosts.empty()) all["hosts"] = to_string(available.hosts);
    if (!lost.empty()) all["lost"] = lost;
    if (!fleet_.problem().empty()) all["problem"] = fleet_.problem();
    if (std::exchange(told_fleet_, all) == all) return;
    events_.add("fleet", all);
    for (const std::string& host : lost) say(fmt::format("host {} does not answer, and is left out", host));
    if (!fleet_.problem().empty()) say(fleet_.problem() + "; what it said before counts");
  }
  void tell_layout(const NextRanks& next, const Available& available) {
    const bool is_own = next.layout.recipe == recipe_;
    if (ranks_ ? is_same_start(*ranks_, next) : is_own) return;
    const std::string words = words_of_layout(next.layout.recipe);
    events_.add("layout", {{"ranks", next.layout.ranks},
                           {"layout", words},
                           {"hosts", to_string(next.hosts)},
                           {"reason", next.layout.why}});
    say(fmt::format("{} rank{} there: {} of them as {} ({})", available.ranks, available.ranks == 1 ? " is" : "s are",
                    next.layout.ranks, words, next.layout.why));
  }
  void tell_waiting(const Available& available) {
    events_.add("waiting", {{"available", available.ranks}});
    say(
        fmt::format("{} rank{} there, for which there is no layout that the recipe allows (fleet.min_ranks, "
                    "fleet.may_change) and that fits; waiting for more",
                    available.ranks, available.ranks == 1 ? " is" : "s are"));
  }
  void tell_start(int number, int64_t newest) {
    nlohmann::json start{{"attempt", number}, {"newest_step", newest}};
    start["ranks"] = ranks_ ? ranks_->layout.ranks : int64_t(mesh_sizes_of(recipe_).world());
    const bool is_own = !ranks_ || ranks_->layout.recipe == recipe_;
    start["layout"] = is_own && !recipe_.layout_now ? ""
                      : !ranks_                     ? words_of_layout(recipe_)
                                                    : words_of_layout(ranks_->layout.recipe);
    events_.add("started", start);
  }
  void tell_end(int number, const AttemptEnd& end, int64_t saved) {
    events_.add("ended", {{"attempt", number},
                          {"cause", std::string(name_of(cause_of(end)))},
                          {"section", std::string(name_of(end.last.section))},
                          {"step", end.last.step},
                          {"saved_step", saved},
                          {"reason", reason_of(end)}});
  }
  int stop_between() {
    return stop(requests_.by_interrupt() ? kExitInterrupted : kExitPreempted, "asked to stop between two attempts");
  }
  int stop(int status, const std::string& why) {
    if (status != kExitOk) say(fmt::format("stopped with status {}: {}", status, why));
    events_.add(status == kExitOk ? "finished" : "stopped", {{"status", status}, {"reason", why}});
    return status;
  }
  // False: asked to stop meanwhile.
  bool wait(double seconds) {
    for (const double till = now_s() + seconds; now_s() < till && !requests_.asked();)
      requests_.wait_ms(int(1 + 1000 * (till - now_s())));
    return !requests_.asked();
  }

  const SuperviseOptions& o_;
  Recipe recipe_;  // in the layout of the attempt
  const fs::path run_;
  EventLog events_;
  const SectionLimits limits_;
  const std::set<pid_t> strangers_ = children_here();
  const HostMemory memory_ = memory_of_this_host();
  StopRequests requests_;
  std::vector<std::string> command_;
  Fleet fleet_;
  std::optional<NextRanks> ranks_;  // of the attempt; none: those of the recipe, as nothing tells of others
  std::optional<QueuePlace> queue_;
  std::optional<QueuedRun> yields_to_;  // as soon as the attempt has saved
  double next_queue_look_s_ = 0;
  std::string queue_problem_;
  nlohmann::json told_fleet_;
};

}  // namespace

int run_supervise(const SuperviseOptions& o) {
  if (o.recipe.empty())
    throw ConfigError("a recipe is missing, as in `weft supervise recipe.toml`; `weft supervise --help` says more");
  const Launched launched = launched_as(environment);
  if (!launched.by.empty())
    throw ConfigError(
        fmt::format("`weft supervise` was started by {}, as process {} of {}: start it once, plainly; it starts the "
                    "ranks itself (run.ranks = \"mpi\")",
                    launched.by, launched.rank, launched.world));
  const Recipe recipe = read_recipe(o.recipe, o.overrides, true);
  const FileModes modes(recipe.run.is_private);
  check_queue_keys(recipe, /*is_supervised=*/true);
  refuse_open_run_folder(recipe);  // before events go there
  return Supervisor(o, recipe).supervise();
}

}  // namespace weft
