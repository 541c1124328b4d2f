// `weft supervise`: a training run that goes on by itself.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/apps/attempts.h"
#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/event_log.h"
#include "weft/apps/file_modes.h"
#include "weft/apps/fleet.h"
#include "weft/apps/launch.h"
#include "weft/apps/next_ranks.h"
#include "weft/base/error.h"
#include "weft/plan/layout.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/records/clock.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/run_access.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

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
  }

  // Returns the exit status.
  int supervise() {
    Attempts attempts(o_.attempts);
    for (int number = 1;; ++number) {
      const std::vector<fs::path> before = checkpoint_folders(run_);
      begin_layout(step_of_last(before));
      if (!settle_ranks(number > 1)) return stop_between();
      tell_start(number, step_of_last(before));
      AttemptEnd end = run_attempt(spec(number), limits_, requests_);
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
    if (!ranks_) return attempt;
    const std::vector<std::string> settings = settings_between(recipe_, ranks_->layout.recipe);
    attempt.command.insert(attempt.command.end(), settings.begin(), settings.end());
    if (!ranks_->hosts.empty()) attempt.hosts = to_string(ranks_->hosts);
    attempt.is_to_move = [this] { return is_to_move(); };
    return attempt;
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
  refuse_open_run_folder(recipe);  // before events go there
  return Supervisor(o, recipe).supervise();
}

}  // namespace weft
