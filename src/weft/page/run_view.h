// A run's folder as people look at it: read again and again as it changes, and never written to. What is missing,
// damaged or hostile in it becomes a problem in words. Not thread-safe.
#pragma once
#include <array>
#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/history/run_facts.h"
#include "weft/page/metrics_follower.h"
#include "weft/page/norm_map.h"
#include "weft/page/trace_view.h"
#include "weft/recipe/recipe.h"

namespace weft {

class RunView {
 public:
  // `name`: as the page calls it. The folder need not be there yet.
  RunView(std::filesystem::path folder, std::string name);

  // Reads what is new, at most about `most_bytes` of each file, and some checkpoints; `now_s`: seconds since 1970.
  void refresh(double now_s, int64_t most_bytes);
  bool has_more() const { return metrics_.has_more() || events_file_.has_more() || has_more_checkpoints_; }

  const std::string& name() const { return name_; }
  // Another number each time when what was told before counts no longer, also from one server to the next: when this
  // view began, in milliseconds since 1970, and how often the run has gone back since.
  int64_t generation() const { return began_ms_ + metrics_.generation(); }
  const RunFacts& facts() const { return facts_; }  // path, id, recipe, attempts, checkpoints; no results
  const std::optional<Recipe>& recipe() const { return recipe_; }
  const MetricsFollower& metrics() const { return metrics_; }
  NormMap& norms(size_t kind) { return norms_[kind]; }  // of kMapKinds

  // "running", "stalled" or name_of(RunStatus), and why, in words (perhaps empty).
  const std::string& state() const { return state_; }
  const std::string& reason() const { return reason_; }
  int64_t step() const { return facts_.step; }
  std::optional<int64_t> total_steps() const;
  std::optional<double> eta_s() const;
  // The step that each attempt began from (facts().attempts), as far as that is known: that of the first one, and of
  // those that a supervisor has started.
  std::vector<std::optional<int64_t>> from_steps() const;
  double saved_s(int64_t step) const;                     // when a checkpoint was; 0: not known
  double last_record_s() const { return facts_.last_s; }  // seconds since 1970; 0: never
  double running_s(double now_s) const;                   // that its attempts lasted together
  int64_t num_events() const { return num_events_; }
  // How many there were of each kind, at most kMostEventKinds of them.
  const std::map<std::string, int64_t>& events_by_kind() const { return events_by_kind_; }
  std::vector<std::string> problems() const;

  // Of the last record of a step: an object as it stands in the file; null where there is none.
  nlohmann::ordered_json latest() const;
  // The last evaluation: its fields, and its step; null where there is none.
  nlohmann::ordered_json held_out() const;
  nlohmann::ordered_json events() const;   // the last ones, oldest first
  nlohmann::ordered_json samples() const;  // likewise
  TraceView& trace() { return trace_; }

 private:
  void read_recipe();
  void read_attempts_file();
  void read_events(int64_t most_bytes);
  void read_samples(int64_t most_bytes);
  void take_start(const nlohmann::json& event);
  void look_at_checkpoints();
  void judge(double now_s);
  bool is_stalled(double now_s);

  std::string name_;
  const int64_t began_ms_;
  RunFacts facts_;
  std::optional<Recipe> recipe_;
  std::string recipe_stamp_, attempts_stamp_;  // of the files as they were read
  std::string recipe_problem_, attempts_problem_;
  MetricsFollower metrics_;
  std::array<NormMap, kMapKinds.size()> norms_;
  TraceView trace_;
  FollowedFile events_file_, samples_file_;
  std::deque<std::string> samples_;  // the last lines
  std::deque<std::string> events_;   // the last lines
  std::map<std::string, int64_t> events_by_kind_;
  struct Start {
    double time_s = 0;
    int64_t step = 0;  // of the newest checkpoint
  };
  std::deque<Start> starts_;  // by a supervisor, the last ones
  int64_t num_events_ = 0, bad_events_ = 0;
  std::set<int64_t> checkpoint_steps_;  // all of which were looked into
  bool has_more_checkpoints_ = false;
  std::map<int64_t, double> saved_s_;  // of these
  std::string state_, reason_;
};

}  // namespace weft
