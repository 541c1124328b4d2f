// metrics.jsonl as it grows: every number of it as a curve by name, in bounded memory; sums of times; the last records.
// Not thread-safe.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/page/followed_file.h"
#include "weft/page/record_numbers.h"
#include "weft/page/thinned_curve.h"

namespace weft {

inline constexpr size_t kMostCurves = 512;        // names of a run
inline constexpr size_t kMostCurvePoints = 4000;  // of one answer and curve
inline constexpr int64_t kRecentSteps = 200;
inline constexpr size_t kNewestKept = 256;  // points of a curve

// Seconds of steps, and beside them.
struct TimeSums {
  int64_t steps = 0;
  double step_s = 0, data_s = 0, eval_s = 0, save_s = 0;
  std::map<std::string, double> waits_s = {};  // by axis; at most kMostAxes
  double tokens = 0, mfu_s = 0;                // of all steps; mfu x step_s
  double waited_s() const;
};

class MetricsFollower {
 public:
  explicit MetricsFollower(const std::filesystem::path& run);

  // Reads at most about `most_bytes` of what is new.
  void poll(int64_t most_bytes);
  bool has_more() const { return file_.has_more(); }
  double read_fraction() const;  // 1: all of the file

  // Another number each time when what was read before counts no longer; from 1 on.
  int64_t generation() const { return generation_; }
  int64_t num_records() const { return sums_.steps; }  // of steps
  int64_t first_step() const { return first_step_; }
  int64_t last_step() const { return last_step_; }  // 0: none is recorded
  int64_t damaged_lines() const { return damaged_; }
  const std::string& problem() const { return file_.problem(); }

  struct Curve {
    RecordKind kind;
    ThinnedCurve points;
    std::deque<CurvePoint> newest = {};  // the last kNewestKept of them
  };
  const std::map<std::string, Curve, std::less<>>& curves() const { return curves_; }
  int64_t names_left_out() const { return names_left_out_; }  // of the record with most of these
  // Points of a curve, as ThinnedCurve::window; a short window of a long run is read from the file again, unless it has
  // only the last kNewestKept points, or until `stops`. None: there is no such curve.
  struct Window : CurveWindow {
    std::string name;
    std::optional<RecordKind> kind = {};
  };
  std::vector<Window> windows(const std::vector<std::string>& names, int64_t from, int64_t to, size_t most,
                              const std::atomic<bool>& stops) const;

  // Whole lines; empty: none came, or it is longer than kLongestKeptLine.
  const std::string& last_record() const { return last_line_; }
  const std::string& last_evaluation() const { return last_evaluation_; }
  // The evaluation with the least loss, the first of equal ones.
  struct Best {
    int64_t step = 0;
    double loss = 0;
  };
  const std::optional<Best>& best_evaluation() const { return best_; }
  // The last value of each result, with its step, by name.
  const std::map<std::string, CurvePoint>& tasks() const { return tasks_; }

  const TimeSums& sums() const { return sums_; }               // of all steps
  TimeSums recent_sums() const;                                // of the last kRecentSteps
  double usual_step_s() const;                                 // of these, the longest; 0: none is known
  double longest_pause_s() const { return longest_pause_s_; }  // evaluations or saves between two steps

  size_t bytes() const;  // of memory, about

 private:
  void clear();
  void take(std::string_view line, int64_t begin);
  void take_step(std::string_view line, int64_t begin);
  void take_evaluation(std::string_view line);
  bool add_to_curve(const std::string& name, double value);  // whether there is one of that name
  std::vector<Window> read_windows(const std::vector<std::string>& names, int64_t from, int64_t to, size_t most,
                                   const std::atomic<bool>& stops) const;
  int64_t bytes_of(int64_t from, int64_t to) const;  // of the file, about, that a window is read from

  FollowedFile file_;
  int64_t generation_ = 1;
  RecordNumbers record_;  // of the line at hand
  std::map<std::string, Curve, std::less<>> curves_;
  int64_t names_left_out_ = 0;
  struct Mark {
    int64_t step, begin;  // of a record of a step; bytes
  };
  std::vector<Mark> marks_;  // of every kMarkEach-th record of a step
  int64_t first_step_ = 0, last_step_ = 0, damaged_ = 0;
  std::string last_line_, last_evaluation_;
  std::optional<Best> best_;
  std::map<std::string, CurvePoint> tasks_;
  TimeSums sums_;
  std::deque<TimeSums> recent_;  // of one step each
  double longest_pause_s_ = 0;
};

}  // namespace weft
