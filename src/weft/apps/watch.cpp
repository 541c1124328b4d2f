#include "weft/apps/watch.h"

#include <atomic>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "weft/apps/backends.h"
#include "weft/apps/child_command.h"
#include "weft/apps/commands.h"
#include "weft/apps/stop_signal.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/forecast/cluster.h"
#include "weft/history/run_scan.h"
#include "weft/page/access.h"
#include "weft/page/page_server.h"
#include "weft/page/plan_map.h"
#include "weft/page/run_news.h"
#include "weft/plan/layout.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr size_t kMostRuns = 64;
constexpr double kLookEach_s = 1;  // also while nobody looks at the page, where a command is told of events

std::vector<std::filesystem::path> runs_in(const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> all;
  for (const std::string& name : names) {
    std::vector<std::string> notes;
    const std::vector<std::string> found = find_run_folders(name, notes);
    for (const std::string& note : notes) std::cerr << "note: " << note << "\n";
    if (found.empty())
      throw FileError(
          fmt::format("{}: is no run's folder, and there is none in it; name a run.dir of `weft train`", name));
    for (const std::string& folder : found)
      if (std::find(all.begin(), all.end(), folder) == all.end()) all.emplace_back(folder);
  }
  if (all.size() > kMostRuns)
    throw ConfigError(
        fmt::format("{} runs are more than the {} that one page shows; name those that matter", all.size(), kMostRuns));
  return all;
}

// What the devices of the recipe's cluster cost an hour. From any thread.
class Prices {
 public:
  std::optional<double> of(const Recipe& recipe) {
    const std::string& cluster = recipe.fleet.cluster;
    if (cluster.empty()) return {};
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = per_device_.try_emplace(cluster, 0);
    if (is_new) {
      try {
        known->second = read_cluster(cluster).price_per_device_hour;
      } catch (const Error&) {}  // the page is not where a cluster's file is judged
    }
    if (known->second <= 0) return {};
    return known->second * mesh_sizes_of(recipe).world();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, double> per_device_;
};

// Runs the command for one event after the other, with its JSON as standard input.
class EventCommand {
 public:
  EventCommand(std::string command, RunNews& news) : command_(std::move(command)), news_(news) {}

  // Looks whether the one that runs has ended, and starts the next. Does not wait.
  void go_on() {
    if (running_) {
      const auto answer = running_->poll();
      if (!answer) return;
      if (!answer->good) note(answer->text);
      running_.reset();
    }
    if (const int64_t left_out = news_.num_left_out(); left_out > std::exchange(left_out_, left_out))
      std::cerr << fmt::format("note: {} events came faster than they could be told: left out\n", left_out);
    const nlohmann::ordered_json event = news_.take();
    if (event.is_null()) return;
    told_ = event.at("text").get<std::string>();
    const std::string input = event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    try {
      running_.emplace(std::vector<std::string>{"sh", "-c", command_}, kCommandS, /*quiet=*/false, input);
    } catch (const Error& e) { note(e.what()); }
  }

 private:
  void note(const std::string& what) const {  // what the event says may come from anywhere
    std::cerr << fmt::format("note: the command of --on-event: {}, for {}\n", what, in_quotes(told_));
  }
  static constexpr double kCommandS = 60;
  const std::string command_;
  RunNews& news_;
  std::optional<ChildCommand> running_;
  std::string told_;  // what it is told
  int64_t left_out_ = 0;
};

}  // namespace

LivePage::Spec page_of_runs(std::vector<std::filesystem::path> runs, bool in_a_run) {
  const auto plan = [in_a_run](const Recipe& recipe, const std::atomic<bool>& stops) {
    if (in_a_run && mesh_sizes_of(recipe).world() > kMostRanksInRun)
      throw ConfigError(fmt::format("a run's own page plans for {} ranks at most; `weft watch {}` plans for more",
                                    kMostRanksInRun, recipe.run.dir));
    check_supported(recipe);
    return plan_map(recipe, *machine_to_plan_for(recipe).workspace_model, stops);
  };
  const auto price = [prices = std::make_shared<Prices>()](const Recipe& recipe) { return prices->of(recipe); };
  return {.runs = std::move(runs), .plan = plan, .price_per_hour = price};
}

int run_watch(const WatchOptions& options) {
  const std::string token = options.token_file.empty() ? "" : token_of_file(options.token_file);
  if (options.on_event.empty() && !options.events.empty())
    throw ConfigError("--events says which events --on-event gets: name its command too");
  RunNews news(options.events.empty() ? RunNews::urgent_kinds() : options.events);
  LivePage::Spec spec = page_of_runs(runs_in(options.runs));
  if (!options.on_event.empty()) spec.on_look = [&](const RunView& run) { news.look(run); };
  LivePage page(std::move(spec));
  listen_to_signals("\nThe page ends; runs go on.\n");
  std::atomic<bool> has_ended{false};
  const PageServer server(
      page, {.address = options.address, .port = options.port, .token = token, .on_end = [&] { has_ended = true; }});
  std::cout << "The page: " << server.url() << "\nCtrl-C ends it; runs go on.\n" << std::flush;
  EventCommand command(options.on_event, news);
  double looked_s = 0;
  while (!stop_requested()) {
    if (!options.on_event.empty()) {
      if (now_s() - looked_s > kLookEach_s) page.look(), looked_s = now_s();
      command.go_on();
    }
    if (has_ended) throw Error("the page has ended: this machine gives it no further connections; runs go on");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return kExitOk;
}

}  // namespace weft
