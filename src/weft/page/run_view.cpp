#include "weft/page/run_view.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/plain_file.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/records/clock.h"
#include "weft/records/progress.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMostRecipe = 4 << 20, kMostAttempts = 4 << 20, kMostState = 16 << 20;  // bytes
constexpr size_t kLongestSamples = 256 << 10, kSamplesKept = 20;
constexpr size_t kLongestEvent = 32 << 10, kEventsKept = 200, kMostEventKinds = 64, kMostCheckpointsShown = 1000;
constexpr int64_t kCheckpointsAtOnce = 16;  // looked into
constexpr JsonLimits kEventLimits{.max_bytes = kLongestEvent, .max_depth = 16};
constexpr JsonLimits kRecordLimits{.max_bytes = 1 << 20, .max_depth = 16};
// For how long nothing may come of a run that is told to be stalled.
constexpr double kStalledS = 60, kFirstStepS = 600, kFirstPauseS = 600;

struct FileTimes {
  std::string stamp = "-";
  double changed_s = 0;
};
FileTimes times_of_file(const fs::path& file) {
  struct stat s = {};
  if (::lstat(file.c_str(), &s) != 0) return {};
  const double changed = double(s.st_mtim.tv_sec) + 1e-9 * double(s.st_mtim.tv_nsec);
  return {fmt::format("{}.{}:{}:{}", s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_size, s.st_ino), changed};
}

fs::path absolute_folder(const fs::path& folder) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(fs::absolute(folder, error), error);
  return error ? folder : found;
}

}  // namespace

RunView::RunView(fs::path folder, std::string name)
    : name_(std::move(name)),
      began_ms_(int64_t(1e3 * wall_time_s())),
      facts_{.path = absolute_folder(folder).string(), .id = id_of_run(absolute_folder(folder))},
      metrics_(facts_.path),
      norms_{{{facts_.path, kMapKinds[0]}, {facts_.path, kMapKinds[1]}, {facts_.path, kMapKinds[2]}}},
      trace_(facts_.path),
      events_file_({.file = fs::path(facts_.path) / "events.jsonl", .longest_line = kLongestEvent}),
      samples_file_({.file = fs::path(facts_.path) / "samples.jsonl", .longest_line = kLongestSamples}) {}

void RunView::refresh(double now_s, int64_t most_bytes) {
  read_recipe();
  read_attempts_file();
  metrics_.poll(most_bytes);
  read_events(most_bytes);
  read_samples(most_bytes);
  look_at_checkpoints();
  facts_.last_s = times_of_file(fs::path(facts_.path) / "metrics.jsonl").changed_s;
  facts_.step = metrics_.last_step();
  if (!facts_.checkpoints.empty()) facts_.step = std::max(facts_.step, facts_.checkpoints.back().step);
  facts_.began_s = facts_.attempts.empty() ? 0 : facts_.attempts.front().began_s;
  judge(now_s);
}

void RunView::read_recipe() {
  const fs::path file = fs::path(facts_.path) / "recipe.toml";
  const std::string stamp = times_of_file(file).stamp;
  if (stamp == recipe_stamp_) return;
  recipe_stamp_ = stamp;
  recipe_.reset();
  facts_.recipe.clear();
  facts_.model = facts_.objective = {};
  facts_.train_iters = 0;
  const std::string text = read_plain(file, kMostRecipe, recipe_problem_);
  if (text.empty()) {
    if (recipe_problem_.empty()) recipe_problem_ = fmt::format("{}: is missing or empty", file.string());
    return;
  }
  try {
    Recipe recipe = parse_recipe(text, file.string(), {});
    for (const RecipeKey& key : recipe_keys(recipe))
      if (std::string value = value_of(key); !value.empty()) facts_.recipe[key.name] = std::move(value);
    facts_.model = recipe.model.path;
    facts_.objective = std::string(name_of(recipe.train.objective));
    facts_.train_iters = recipe.train.train_iters;
    recipe_ = std::move(recipe);
  } catch (const std::exception& e) { recipe_problem_ = e.what(); }
}

void RunView::read_attempts_file() {
  const fs::path file = fs::path(facts_.path) / "attempts.jsonl";
  const std::string stamp = times_of_file(file).stamp;
  if (stamp == attempts_stamp_) return;
  attempts_stamp_ = stamp;
  facts_.attempts.clear();
  if (open_plain(file, attempts_problem_) < 0) return;
  try {
    if (!is_plain_file(file, kMostAttempts)) return;
    std::vector<std::string> problems;
    facts_.attempts = read_attempts(facts_.path, problems);
    if (!problems.empty()) attempts_problem_ = problems.front();
  } catch (const std::exception& e) { attempts_problem_ = e.what(); }
}

void RunView::read_events(int64_t most_bytes) {
  events_file_.poll({.anew =
                         [&] {
                           events_.clear();
                           events_by_kind_.clear();
                           starts_.clear();
                           num_events_ = bad_events_ = 0;
                         },
                     .line =
                         [&](std::string_view text, int64_t) {
                           try {
                             const nlohmann::json line = parse_json(text, "events.jsonl", kEventLimits);
                             const std::string kind = JsonFields(line, "events.jsonl").string("event");
                             if (events_by_kind_.size() < kMostEventKinds || events_by_kind_.count(kind) > 0)
                               ++events_by_kind_[kind];
                             if (kind == "started") take_start(line);
                           } catch (const std::exception&) {
                             ++bad_events_;
                             return;
                           }
                           ++num_events_;
                           events_.emplace_back(text);
                           if (events_.size() > kEventsKept) events_.pop_front();
                         },
                     .too_long = [&] { ++bad_events_; }},
                    most_bytes);
}

void RunView::read_samples(int64_t most_bytes) {
  samples_file_.poll({.anew = [&] { samples_.clear(); },
                      .line =
                          [&](std::string_view text, int64_t) {
                            samples_.emplace_back(text);
                            if (samples_.size() > kSamplesKept) samples_.pop_front();
                          },
                      .too_long = [] {}},
                     most_bytes);
}

void RunView::take_start(const nlohmann::json& event) {
  const auto time = event.find("time"), step = event.find("newest_step");
  if (time == event.end() || !time->is_number() || step == event.end() || !step->is_number_integer()) return;
  starts_.push_back({time->get<double>(), std::max<int64_t>(0, step->get<int64_t>())});
  if (starts_.size() > kEventsKept) starts_.pop_front();
}

void RunView::look_at_checkpoints() {
  std::vector<fs::path> folders;
  try {
    folders = checkpoint_folders(facts_.path);
  } catch (const std::exception&) {}
  std::error_code ignored;
  folders.erase(std::remove_if(folders.begin(), folders.end(),
                               [&](const fs::path& f) { return !fs::is_directory(fs::symlink_status(f, ignored)); }),
                folders.end());
  if (folders.size() > kMostCheckpointsShown) folders.erase(folders.begin(), folders.end() - kMostCheckpointsShown);
  std::set<int64_t> steps;
  for (const fs::path& f : folders) steps.insert(step_of(f));
  if (steps == checkpoint_steps_) return;
  std::vector<CheckpointFacts> before = std::move(facts_.checkpoints);
  facts_.checkpoints.clear();
  const auto known_of = [&](int64_t step) {
    return std::find_if(before.begin(), before.end(), [&](const auto& c) { return c.step == step; });
  };
  int64_t left_out = -kCheckpointsAtOnce;  // the oldest of those that are not known yet
  for (const int64_t step : steps) left_out += known_of(step) == before.end();
  has_more_checkpoints_ = left_out > 0;
  for (const fs::path& folder : folders) {
    const int64_t step = step_of(folder);
    if (const auto known = known_of(step); known != before.end()) {
      facts_.checkpoints.push_back(*known);
      continue;
    }
    if (left_out-- > 0) continue;
    saved_s_[step] = times_of_file(folder / "weft" / "state.json").changed_s;
    CheckpointFacts c{.step = step, .bytes = bytes_below(folder)};
    try {
      if (is_plain_file(folder / "weft" / "state.json", kMostState))
        if (const auto held_out = read_progress(folder).held_out) c.held_out_loss = held_out->loss;
    } catch (const std::exception&) {}  // it is shown without a loss
    facts_.checkpoints.push_back(c);
  }
  for (auto at = saved_s_.begin(); at != saved_s_.end();)
    at = steps.count(at->first) > 0 ? std::next(at) : saved_s_.erase(at);
  checkpoint_steps_ = has_more_checkpoints_ ? std::set<int64_t>() : std::move(steps);
}

bool RunView::is_stalled(double now_s) {
  if (facts_.train_iters > 0 && facts_.step >= facts_.train_iters) return false;  // it saves and ends
  const double began = facts_.attempts.empty() ? 0 : facts_.attempts.back().began_s;
  const double since = std::max(began, facts_.last_s);
  const bool has_stepped = metrics_.num_records() > 0 && facts_.last_s > began;
  double limit = std::max({kStalledS, 10 * metrics_.usual_step_s(), 3 * metrics_.longest_pause_s()});
  if (!has_stepped) limit = std::max(limit, kFirstStepS);
  if (metrics_.longest_pause_s() == 0) limit = std::max(limit, kFirstPauseS);
  if (since <= 0 || now_s - since <= limit) return false;
  reason_ = fmt::format("no record for {}; so long may a step, an evaluation or a save of this run take: {}",
                        format_duration(now_s - since), format_duration(limit));
  return true;
}

void RunView::judge(double now_s) {
  const RunStatus status = status_now(facts_);
  state_ = std::string(name_of(status));
  reason_.clear();
  if (status == RunStatus::running && is_stalled(now_s)) state_ = "stalled";
  if (status == RunStatus::failed && !facts_.attempts.empty()) {
    const RunAttempt::End& end = *facts_.attempts.back().end;
    reason_ = end.reason.empty() ? fmt::format("it ended with status {}", end.status) : end.reason;
  }
  if (status == RunStatus::lost) reason_ = "its last attempt ended without a word: killed, or a power cut";
  if (status == RunStatus::unreadable) reason_ = recipe_problem_;
  if (status == RunStatus::away) reason_ = fmt::format("{} is not there now", facts_.path);
}

std::optional<int64_t> RunView::total_steps() const {
  return facts_.train_iters > 0 ? std::optional(facts_.train_iters) : std::nullopt;
}

std::optional<double> RunView::eta_s() const {
  const auto total = total_steps();
  if (!total || (state_ != "running" && state_ != "stalled")) return {};
  const TimeSums sums = metrics_.recent_sums();
  if (sums.steps == 0) return {};
  const double a_step = (sums.step_s + sums.eval_s + sums.save_s) / double(sums.steps);
  return a_step > 0 ? std::optional(a_step * double(std::max<int64_t>(0, *total - facts_.step))) : std::nullopt;
}

double RunView::saved_s(int64_t step) const {
  const auto at = saved_s_.find(step);
  return at == saved_s_.end() ? 0 : at->second;
}

std::vector<std::optional<int64_t>> RunView::from_steps() const {
  std::vector<std::optional<int64_t>> all(facts_.attempts.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == 0 && facts_.attempts[0].from.empty()) all[0] = 0;
    // The supervisor says it just before the attempt does.
    const double before = i > 0 ? facts_.attempts[i - 1].began_s : 0, began = facts_.attempts[i].began_s;
    for (const Start& s : starts_)
      if (s.time_s > before && s.time_s <= began) all[i] = s.step;
  }
  return all;
}

double RunView::running_s(double now_s) const {
  double all = 0;
  for (size_t i = 0; i < facts_.attempts.size(); ++i) {
    const RunAttempt& a = facts_.attempts[i];
    const bool is_last = i + 1 == facts_.attempts.size();
    double end = a.began_s;  // of one that was lost, unless it was the last: not known
    if (a.end) end = a.end->time_s;
    if (!a.end && is_last) end = state_ == "running" || state_ == "stalled" ? now_s : facts_.last_s;
    all += std::max(0.0, end - a.began_s);
  }
  return all;
}

std::vector<std::string> RunView::problems() const {
  std::vector<std::string> all;
  const auto add = [&](const std::string& problem) {
    if (!problem.empty() && std::find(all.begin(), all.end(), problem) == all.end()) all.push_back(problem);
  };
  for (const std::string* p : {&recipe_problem_, &attempts_problem_, &metrics_.problem()}) add(*p);
  for (const NormMap& map : norms_) add(map.problem());  // two are of one file
  for (const FollowedFile* file : {&events_file_, &samples_file_}) add(file->problem());
  if (metrics_.damaged_lines() > 0)
    all.push_back(fmt::format("metrics.jsonl: {} lines are no records: passed over", metrics_.damaged_lines()));
  if (bad_events_ > 0) all.push_back(fmt::format("events.jsonl: {} lines are no events: passed over", bad_events_));
  return all;
}

Json RunView::latest() const {
  if (metrics_.last_record().empty()) return nullptr;
  try {
    (void)parse_json(metrics_.last_record(), "metrics.jsonl", kRecordLimits);  // judges how deep it is
    return Json::parse(metrics_.last_record());
  } catch (const std::exception&) { return nullptr; }
}

Json RunView::held_out() const {
  if (metrics_.last_evaluation().empty()) return nullptr;
  try {
    const nlohmann::json line = parse_json(metrics_.last_evaluation(), "metrics.jsonl", kRecordLimits);
    Json fields{{"step", line.at("step")}};
    for (const auto& [name, value] : line.at("eval").items()) fields[name] = value;
    return fields;
  } catch (const std::exception&) { return nullptr; }
}

// A step that ran twice is told as it ran last. What is no line of samples is passed over.
Json RunView::samples() const {
  std::map<int64_t, Json> all;
  for (const std::string& line : samples_) {
    try {
      const nlohmann::json json = parse_json(line, "samples.jsonl", {.max_bytes = kLongestSamples, .max_depth = 4});
      const JsonFields fields(json, "samples.jsonl");
      Json texts = Json::array();
      for (const nlohmann::json& one : fields.list("samples", "a list of texts")) {
        const JsonFields sample(one, "samples.jsonl", "samples.");
        texts.push_back({{"prompt", sample.string("prompt")}, {"text", sample.string("text")}});
      }
      all[fields.integer("step", {.min = 0})] = std::move(texts);
    } catch (const std::exception&) {}
  }
  Json told = Json::array();
  for (auto& [step, texts] : all) told.push_back({{"step", step}, {"samples", std::move(texts)}});
  return told;
}

Json RunView::events() const {
  Json all = Json::array();
  for (const std::string& line : events_) all.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
  return all;
}

}  // namespace weft
