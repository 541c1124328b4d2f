#include "weft/apps/watch.h"

#include <atomic>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/stop_signal.h"
#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/history/run_scan.h"
#include "weft/page/access.h"
#include "weft/page/page_server.h"
#include "weft/page/plan_map.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

constexpr size_t kMostRuns = 64;

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
  LivePage page(page_of_runs(runs_in(options.runs)));
  listen_to_signals("\nThe page ends; runs go on.\n");
  std::atomic<bool> has_ended{false};
  const PageServer server(
      page, {.address = options.address, .port = options.port, .token = token, .on_end = [&] { has_ended = true; }});
  std::cout << "The page: " << server.url() << "\nCtrl-C ends it; runs go on.\n" << std::flush;
  while (!stop_requested()) {
    if (has_ended) throw Error("the page has ended: this machine gives it no further connections; runs go on");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return kExitOk;
}

}  // namespace weft
