// What the page's server answers, without HTTP: runs are read when somebody asks, and not otherwise
// (docs/formats/page.md). All functions may be called from any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/page/machine_look.h"
#include "weft/page/run_view.h"

namespace weft {

struct PageAnswer {
  int status = 200;
  std::string type = "application/json; charset=utf-8";
  std::string body = {};
};

class LivePage {
 public:
  struct Spec {
    std::vector<std::filesystem::path> runs;  // folders; at least one
    // The object of /api/plan for a recipe. Throws Error: it cannot be planned here, or `stops` became true meanwhile,
    // which it looks at as often as it can.
    std::function<nlohmann::ordered_json(const Recipe&, const std::atomic<bool>& stops)> plan = {};
    // What its devices cost an hour, in the user's money; none: not known. Called from any thread.
    std::function<std::optional<double>(const Recipe&)> price_per_hour = {};
    // Called with each run behind each look at its files, while no other thread is answered.
    std::function<void(const RunView&)> on_look = {};
    std::filesystem::path machine_root = "/";  // of /proc and /sys
    double refresh_each_s = 0.4;               // how old what is told may be
  };
  explicit LivePage(Spec spec);
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;
  ~LivePage();

  using Params = std::multimap<std::string, std::string>;
  // Of all but /api/stream. Throws nothing but where memory is out.
  PageAnswer answer(const std::string& path, const Params& params);

  // Looks at the runs' files, if that is due: what a message or an answer does too. Throws as they do.
  void look();

  // The message of /api/stream, if it is another than number `seen`, which becomes its number; else empty.
  std::string news(int64_t& seen);

  // What is being read or planned ends as soon as it can, and nothing further is: answers are of what was read.
  void stop() { stops_ = true; }

  size_t bytes() const;  // of memory that curves take, about

 private:
  struct Plan;
  PageAnswer answer_of(const std::string& path, const Params& params);
  void refresh();
  std::string text_of_run(size_t number);
  size_t run_of(const Params& params) const;
  nlohmann::ordered_json list_of_runs() const;
  nlohmann::ordered_json curves(const Params& params) const;
  nlohmann::ordered_json norm_map(const Params& params);
  nlohmann::ordered_json traffic(const Params& params) const;
  nlohmann::ordered_json trace(const Params& params);
  nlohmann::ordered_json machine();
  std::string plan_of(size_t run);

  const Spec spec_;
  mutable std::mutex mutex_;  // over all but plans_
  std::vector<std::unique_ptr<RunView>> runs_;
  double refreshed_s_ = -1;  // of a steady clock
  size_t next_run_ = 0;      // to be looked at
  std::atomic<bool> stops_{false};
  MachineLook machine_;
  std::string told_;  // what the stream tells of the runs
  int64_t message_number_ = 0;
  double told_of_s_ = -1;  // refreshed_s_ that the message is of
  std::mutex plans_mutex_;
  std::vector<std::unique_ptr<Plan>> plans_;  // [run]
};

// Names for runs, in UTF-8, each of which is the end of its path, as short as makes them differ.
std::vector<std::string> names_of_runs(const std::vector<std::filesystem::path>& folders);

}  // namespace weft
