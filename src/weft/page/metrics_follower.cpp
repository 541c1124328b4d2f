#include "weft/page/metrics_follower.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace weft {
namespace {

// A curve costs 320 KiB at most, from the 65th on 80 KiB, and 4 KiB for its newest points: 57 MiB a run at most, 7 MiB
// with 20 names.
constexpr size_t kBuckets = 8192, kBucketsOfMany = 2048, kManyCurves = 64;
constexpr int64_t kMarkEach = 256;
// Bytes that are read again for a window that memory shows too coarsely: 100,000 records of 320.
constexpr int64_t kMostReadAgain = 32 << 20;
constexpr size_t kLongestKeptLine = 256 << 10;
constexpr size_t kMostAxes = 16, kMostTasks = 512, kLongestName = 200;

size_t buckets_for(size_t curves_before) { return curves_before < kManyCurves ? kBuckets : kBucketsOfMany; }

// Whether it has all points of the curve from that step on.
bool has_newest(const MetricsFollower::Curve& curve, int64_t from) {
  return int64_t(curve.newest.size()) == curve.points.num_points() || from >= curve.newest.front().step;
}
CurveWindow window_of_newest(const MetricsFollower::Curve& curve, int64_t from, int64_t to, size_t most) {
  ThinnedCurve newest(kNewestKept);
  for (const CurvePoint& p : curve.newest)
    if (p.step >= from && p.step <= to) newest.add(p.step, p.value);
  return newest.window(from, to, most);
}

double finite_or_0(double x) { return std::isfinite(x) ? x : 0; }

void add(TimeSums& to, const TimeSums& one) {
  to.steps += one.steps;
  to.step_s += one.step_s;
  to.data_s += one.data_s;
  to.eval_s += one.eval_s;
  to.save_s += one.save_s;
  to.tokens += one.tokens;
  to.mfu_s += one.mfu_s;
  for (const auto& [axis, seconds] : one.waits_s)
    if (to.waits_s.size() < kMostAxes || to.waits_s.count(axis) > 0) to.waits_s[axis] += seconds;
}

// What a record says of its times.
TimeSums times_of(const RecordNumbers& record) {
  TimeSums t{.steps = 1};
  double tokens_per_s = 0, mfu = 0;
  for (const auto& [name, number] : record.numbers) {
    const double value = finite_or_0(number);
    if (name == "step_time_s") t.step_s = value;
    if (name == "data_s") t.data_s = value;
    if (name == "eval_s") t.eval_s = value;
    if (name == "save_s") t.save_s = value;
    if (name == "tokens_per_s") tokens_per_s = value;
    if (name == "mfu") mfu = value;
    if (name.starts_with("waits_s.") && t.waits_s.size() < kMostAxes) t.waits_s[name.substr(8)] = value;
  }
  t.tokens = tokens_per_s * t.step_s;
  t.mfu_s = mfu * t.step_s;
  return t;
}

}  // namespace

double TimeSums::waited_s() const {
  double all = 0;
  for (const auto& [axis, seconds] : waits_s) all += seconds;
  return all;
}

MetricsFollower::MetricsFollower(const std::filesystem::path& run) : file_({.file = run / "metrics.jsonl"}) {}

void MetricsFollower::poll(int64_t most_bytes) {
  file_.poll({.anew = [&] { clear(); },
              .line = [&](std::string_view line, int64_t begin) { take(line, begin); },
              .too_long = [&] { ++damaged_; }},
             most_bytes);
}

double MetricsFollower::read_fraction() const {
  return has_more() ? double(file_.read_bytes()) / double(file_.size_bytes()) : 1;
}

void MetricsFollower::clear() {
  ++generation_;
  curves_.clear();
  marks_.clear();
  names_left_out_ = first_step_ = last_step_ = damaged_ = 0;
  last_line_.clear();
  last_evaluation_.clear();
  best_.reset();
  tasks_.clear();
  sums_ = {};
  recent_.clear();
  longest_pause_s_ = 0;
}

void MetricsFollower::take(std::string_view line, int64_t begin) {
  if (!read_record(line, record_)) {
    ++damaged_;
    return;
  }
  if (record_.kind == RecordKind::step)
    take_step(line, begin);
  else
    take_evaluation(line);
  int64_t left_out = 0;
  for (const auto& [name, value] : record_.numbers) left_out += !add_to_curve(name, value);
  names_left_out_ = std::max(names_left_out_, left_out);
}

void MetricsFollower::take_step(std::string_view line, int64_t begin) {
  if (sums_.steps == 0)
    first_step_ = record_.step;
  else if (record_.step <= last_step_) {  // no run writes so: it cuts the file before it goes back
    ++damaged_;
    record_.numbers.clear();
    return;
  }
  last_step_ = record_.step;
  if (sums_.steps % kMarkEach == 0) marks_.push_back({record_.step, begin});
  if (line.size() <= kLongestKeptLine)
    last_line_ = line;
  else
    last_line_.clear();
  TimeSums times = times_of(record_);
  longest_pause_s_ = std::max({longest_pause_s_, times.eval_s, times.save_s});
  add(sums_, times);
  recent_.push_back(std::move(times));
  if (int64_t(recent_.size()) > kRecentSteps) recent_.pop_front();
}

void MetricsFollower::take_evaluation(std::string_view line) {
  for (const auto& [name, value] : record_.numbers) {
    if (record_.kind == RecordKind::task) {
      if (tasks_.size() < kMostTasks || tasks_.count(name) > 0) tasks_[name] = {record_.step, value};
    } else if (name == "held_out.loss" && std::isfinite(value) && (!best_ || value < best_->loss)) {
      best_ = Best{record_.step, value};
    }
  }
  if (record_.kind != RecordKind::held_out) return;
  if (line.size() <= kLongestKeptLine)
    last_evaluation_ = line;
  else
    last_evaluation_.clear();
}

bool MetricsFollower::add_to_curve(const std::string& name, double value) {
  auto at = curves_.find(name);
  if (at == curves_.end()) {
    if (curves_.size() >= kMostCurves || name.size() > kLongestName) return false;
    const size_t buckets = buckets_for(curves_.size());
    at = curves_.emplace(name, Curve{record_.kind, ThinnedCurve(buckets)}).first;
  }
  Curve& curve = at->second;
  const bool follows = curve.points.num_points() == 0 || curve.points.last().step < record_.step;
  if (curve.kind == record_.kind && follows) {
    curve.points.add(record_.step, value);
    curve.newest.push_back({record_.step, value});
    if (curve.newest.size() > kNewestKept) curve.newest.pop_front();
  }
  return true;
}

int64_t MetricsFollower::bytes_of(int64_t from, int64_t to) const {
  const auto after = [&](int64_t at) {
    return std::upper_bound(marks_.begin(), marks_.end(), at,
                            [](int64_t step, const Mark& m) { return step < m.step; });
  };
  const auto first = after(from), last = after(to);
  const int64_t end = last == marks_.end() ? file_.read_bytes() : last->begin;
  return end - (first == marks_.begin() ? 0 : std::prev(first)->begin);
}

std::vector<MetricsFollower::Window> MetricsFollower::windows(const std::vector<std::string>& names, int64_t from,
                                                              int64_t to, size_t most,
                                                              const std::atomic<bool>& stops) const {
  std::vector<Window> all;
  std::vector<std::string> too_coarse;
  most = std::clamp<size_t>(most, 4, kMostCurvePoints);
  for (const std::string& name : names) {
    Window window{{}, name};
    if (const auto at = curves_.find(name); at != curves_.end()) {
      const ThinnedCurve& curve = at->second.points;
      window.kind = at->second.kind;
      const bool is_coarse = curve.points_a_bucket() > 1 && 2 * curve.buckets_in(from, to) < most;
      if (is_coarse && has_newest(at->second, from))
        static_cast<CurveWindow&>(window) = window_of_newest(at->second, from, to, most);
      else if (is_coarse && window.kind == RecordKind::step && bytes_of(from, to) <= kMostReadAgain)
        too_coarse.push_back(name);
      else
        static_cast<CurveWindow&>(window) = curve.window(from, to, most);
    }
    all.push_back(std::move(window));
  }
  if (too_coarse.empty()) return all;
  for (Window& again : read_windows(too_coarse, from, to, most, stops))
    for (Window& window : all)
      if (window.name == again.name) static_cast<CurveWindow&>(window) = again;
  return all;
}

std::vector<MetricsFollower::Window> MetricsFollower::read_windows(const std::vector<std::string>& names, int64_t from,
                                                                   int64_t to, size_t most,
                                                                   const std::atomic<bool>& stops) const {
  std::map<std::string, ThinnedCurve, std::less<>> curves;
  for (const std::string& name : names) curves.emplace(name, ThinnedCurve(kBuckets));
  const auto after =
      std::upper_bound(marks_.begin(), marks_.end(), from, [](int64_t step, const Mark& m) { return step < m.step; });
  const int64_t begin = after == marks_.begin() ? 0 : std::prev(after)->begin;
  RecordNumbers record;
  int64_t last = -1;
  file_.read_again(begin, [&](std::string_view line) {
    if (stops) return false;
    if (!read_record(line, record) || record.kind != RecordKind::step || record.step <= last) return true;
    if (record.step > to) return false;
    last = record.step;
    if (record.step < from) return true;
    for (const auto& [name, value] : record.numbers)
      if (const auto at = curves.find(name); at != curves.end())
        if (at->second.num_points() == 0 || at->second.last().step < record.step) at->second.add(record.step, value);
    return true;
  });
  std::vector<Window> all;
  for (const auto& [name, curve] : curves) all.push_back({curve.window(from, to, most), name, RecordKind::step});
  return all;
}

TimeSums MetricsFollower::recent_sums() const {
  TimeSums sums;
  for (const TimeSums& one : recent_) add(sums, one);
  return sums;
}

double MetricsFollower::usual_step_s() const {
  double longest = 0;
  for (const TimeSums& one : recent_) longest = std::max(longest, one.step_s);
  return longest;
}

size_t MetricsFollower::bytes() const {
  size_t all = marks_.capacity() * sizeof(Mark) + last_line_.capacity() + last_evaluation_.capacity();
  for (const auto& [name, curve] : curves_)
    all += name.size() + sizeof(Curve) + curve.points.bytes() + curve.newest.size() * sizeof(CurvePoint);
  return all;
}

}  // namespace weft
