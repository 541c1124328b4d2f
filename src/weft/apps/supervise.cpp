// `weft supervise`: a training run that goes on by itself.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/attempts.h"
#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/launch.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/records/clock.h"
#include "weft/train/checkpoint_folders.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// RUN/events.jsonl: what happened to the run, a line each. Until there is such a folder, lines wait. What cannot be
// written is left out: the run goes on.
class EventLog {
 public:
  explicit EventLog(fs::path run) : run_(std::move(run)) {}
  void add(const std::string& event, nlohmann::json more) {
    more["event"] = event;
    more["time"] = wall_time_s();
    waiting_ += json_line(more);
    write();
  }
  void write() {
    std::error_code ignored;
    if (waiting_.empty() || !fs::is_directory(run_, ignored)) return;
    std::ofstream file(run_ / "events.jsonl", std::ios::app);
    if (file << waiting_ << std::flush) waiting_.clear();
  }

 private:
  static std::string json_line(const nlohmann::json& j) {
    return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  const fs::path run_;
  std::string waiting_;
};

class Supervisor {
 public:
  Supervisor(const SuperviseOptions& o, const Recipe& recipe)
      : o_(o),
        run_(recipe.run.dir),
        events_(recipe.run.dir),
        limits_{.least_s = o.hang_s, .first_s = 60 * o.first_minutes} {
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
      events_.add("started", {{"attempt", number}, {"newest_step", step_of_last(before)}});
      const AttemptEnd end = run_attempt(
          {.command = command_, .number = number, .strangers = strangers_, .hang_s = o_.hang_s}, limits_, requests_);
      const std::vector<fs::path> now = checkpoint_folders(run_);
      const int64_t after = step_of_last(now);
      const Attempts::Verdict verdict = attempts.judge(end, has_new(before, now));
      tell_end(number, end, after);
      if (verdict.again) {
        say(fmt::format("{}; starting again, the newest checkpoint is of step {}{}", reason_of(end), after,
                        verdict.delay_s > 0 ? fmt::format(" in {:g} s", verdict.delay_s) : ""));
        if (wait(verdict.delay_s)) continue;
        return stop(requests_.by_interrupt() ? kExitInterrupted : kExitPreempted, "asked to stop between two attempts");
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
  static void say(const std::string& line) { std::cerr << "weft supervise: " << line << std::endl; }

  void tell_end(int number, const AttemptEnd& end, int64_t saved) {
    events_.add("ended", {{"attempt", number},
                          {"cause", std::string(name_of(cause_of(end)))},
                          {"section", std::string(name_of(end.last.section))},
                          {"step", end.last.step},
                          {"saved_step", saved},
                          {"reason", reason_of(end)}});
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
  const fs::path run_;
  EventLog events_;
  const SectionLimits limits_;
  const std::set<pid_t> strangers_ = children_here();
  StopRequests requests_;
  std::vector<std::string> command_;
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
  return Supervisor(o, read_recipe(o.recipe, o.overrides, true)).supervise();
}

}  // namespace weft
