#include "weft/apps/sweep_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/records/metrics_log.h"

namespace weft {

namespace {

constexpr size_t kLastSteps = 10;

nlohmann::json number_or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::json line_of(const TrialResult& r) {
  return {{"stage", r.stage},
          {"trial", r.trial},
          {"rung", r.rung},
          {"steps", r.steps},
          {"held_out", number_or_null(r.held_out)},
          {"train", number_or_null(r.train)},
          {"failed", r.failed}};
}

TrialResult result_of(const nlohmann::json& line, const std::string& source) {
  const JsonFields f(line, source);
  const auto number = [&](const char* key) -> std::optional<double> {
    if (!f.has(key)) return {};
    return f.number(key, {.min = std::numeric_limits<double>::lowest()});
  };
  return {.stage = f.string("stage"),
          .trial = f.integer("trial", {}),
          .rung = f.integer("rung", {.min = 0}),
          .steps = f.integer("steps", {.min = 0}),
          .held_out = number("held_out"),
          .train = number("train"),
          .failed = f.string("failed")};
}

bool is_result_of(const TrialResult& r, const std::string& stage, int64_t trial, int64_t rung) {
  return r.stage == stage && r.trial == trial && r.rung == rung;
}

}  // namespace

TrialResult result_of_run(const std::filesystem::path& run, TrialResult of) {
  Metrics metrics;
  try {
    metrics = read_metrics(run / "metrics.jsonl");
  } catch (const FileError& e) {
    of.failed = e.what();
    return of;
  }
  if (!metrics.steps.empty()) of.steps = metrics.steps.back().step;
  if (!metrics.evals.empty() && std::isfinite(metrics.evals.back().loss)) of.held_out = metrics.evals.back().loss;
  const size_t num = std::min(metrics.steps.size(), kLastSteps);
  double sum = 0;
  for (size_t i = 0; i < num; ++i) sum += metrics.steps[metrics.steps.size() - 1 - i].loss;
  if (num > 0 && std::isfinite(sum)) of.train = sum / double(num);
  if (!of.train) of.failed = "its last train losses are no finite numbers: a lower optimizer.lr may help";
  return of;
}

bool all_held_out(const std::vector<TrialResult>& results) {
  return std::all_of(results.begin(), results.end(),
                     [](const TrialResult& r) { return !r.failed.empty() || r.held_out.has_value(); });
}

void sort_by_metric(std::vector<TrialResult>& results) {
  const bool held_out = all_held_out(results);
  std::stable_sort(results.begin(), results.end(), [&](const TrialResult& a, const TrialResult& b) {
    if (a.failed.empty() != b.failed.empty()) return a.failed.empty();
    if (!a.failed.empty()) return false;
    return held_out ? *a.held_out < *b.held_out : a.train.value_or(0) < b.train.value_or(0);
  });
}

SweepState::SweepState(const std::filesystem::path& folder, const nlohmann::json& identity)
    : folder_(folder), file_(folder / "sweep.jsonl") {
  std::error_code error;
  if (!std::filesystem::exists(file_, error) && std::filesystem::exists(folder_, error) &&
      !std::filesystem::is_empty(folder_, error))
    throw ConfigError(
        fmt::format("{}: the folder holds other things than a sweep; give a new one with --folder", folder_.string()));
  create_folders(folder_);
  fd_ = Descriptor(::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0666));
  if (fd_ < 0) throw FileError(fmt::format("{}: cannot be opened: {}", file_.string(), std::strerror(errno)));
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0)
    throw ConfigError(
        fmt::format("{}: another process runs this sweep; wait for it, or give another --folder", folder_.string()));
  read(identity);
}

void SweepState::read(const nlohmann::json& identity) {
  std::ifstream in(file_, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t whole = text.rfind('\n') + 1;  // 0: no line is whole
  if (whole < text.size() && ::ftruncate(fd_, off_t(whole)) != 0)
    throw FileError(fmt::format("{}: its torn last line cannot be cut off: {}", file_.string(), std::strerror(errno)));
  if (whole == 0) return append({{"sweep", identity}});
  std::istringstream lines(text.substr(0, whole));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string source = fmt::format("{}:{}", file_.string(), ++number);
    const nlohmann::json value = parse_json(line, source);
    if (number > 1) {
      results_.push_back(result_of(value, source));
      continue;
    }
    const JsonFields head(value, source);
    if (const auto other = first_difference(head.object("sweep").json(), identity))
      throw ConfigError(
          fmt::format("{}: this is another sweep: {} is {} there, and {} here; give another --folder, or the command "
                      "of that sweep to go on with it",
                      folder_.string(), other->path, other->a, other->b));
  }
}

void SweepState::append(const nlohmann::json& line) {
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (::write(fd_, text.data(), text.size()) != ssize_t(text.size()) || ::fsync(fd_) != 0)
    throw FileError(fmt::format("{}: cannot be written: {}; is the disk full?", file_.string(), std::strerror(errno)));
}

const TrialResult* SweepState::find(const std::string& stage, int64_t trial, int64_t rung) const {
  for (auto r = results_.rbegin(); r != results_.rend(); ++r)
    if (is_result_of(*r, stage, trial, rung)) return &*r;
  return nullptr;
}

void SweepState::add(const TrialResult& result) {
  append(line_of(result));
  results_.push_back(result);
}

void SweepState::forget_failed() {
  std::erase_if(results_, [](const TrialResult& r) { return !r.failed.empty(); });
}

}  // namespace weft
