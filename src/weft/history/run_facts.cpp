#include "weft/history/run_facts.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/recipe/islands.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/records/clock.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostRecipeBytes = 4 << 20, kMostDataBytes = 64 << 20;
constexpr size_t kMostCheckpoints = 10'000;
constexpr std::string_view kRecipeMark = "# weft wrote this: the whole recipe of the run";  // run_folder.cpp
constexpr std::array<std::string_view, 8> kStatusNames = {"running", "finished",   "stopped",    "failed",
                                                          "lost",    "unfinished", "unreadable", "away"};
// Exit statuses of a run that saved and stopped when it was asked to (docs/operations.md).
constexpr int kStoppedBySignal = 75, kStoppedByCtrlC = 130;
// Keys that name a folder or a file beside the training data.
constexpr std::array<std::string_view, 5> kInputKeys = {"model.path", "adapter.path", "objective.teacher",
                                                        "objective.teacher_logits", "objective.reference"};

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}
bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool begins_with_mark(const fs::path& file) {
  if (!is_file(file)) return false;
  std::ifstream in(file, std::ios::binary);
  std::string head(kRecipeMark.size(), '\0');
  return in.read(head.data(), std::streamsize(head.size())) && head == kRecipeMark;
}

double time_of(const fs::path& file) {
  struct stat s = {};
  return ::stat(file.c_str(), &s) == 0 ? double(s.st_mtim.tv_sec) + 1e-9 * double(s.st_mtim.tv_nsec) : 0;
}

// Whether another process owns the folder. RunLock waits for longer than the lock is shared here. On a file system
// without locks: whether it has written a record of late.
bool is_owned(const fs::path& run) {
  constexpr double kOfLateS = 600;
  const fs::path file = run / "run.lock";
  if (!is_file(file)) return false;
  const Descriptor fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd < 0 || ::flock(fd, LOCK_SH | LOCK_NB) == 0) return false;
  return errno == EWOULDBLOCK || wall_time_s() - time_of(run / "metrics.jsonl") < kOfLateS;
}

// Runs `read`; what it throws becomes a problem.
void attempt_to(RunFacts& facts, const std::function<void()>& read) {
  try {
    read();
  } catch (const std::exception& e) { facts.problems.emplace_back(e.what()); }
}

// --- the recipe ---

// A text in quotes, as TOML; empty: it is none.
std::string unquoted(const std::string& toml) {
  const auto value = nlohmann::json::parse(toml, nullptr, /*allow_exceptions=*/false);
  return value.is_string() ? value.get<std::string>() : "";
}

// The folder that the run's relative paths are seen from: as its last attempt says; else what RUN ends with run.dir
// below. None: not known.
std::optional<fs::path> base_folder(const RunFacts& facts, const fs::path& run_dir) {
  for (auto a = facts.attempts.rbegin(); a != facts.attempts.rend(); ++a)
    if (!a->folder.empty()) return fs::path(a->folder);
  if (run_dir.empty() || run_dir.is_absolute()) return {};
  fs::path base = facts.path, rest = run_dir.lexically_normal();
  if (rest.filename().empty()) rest = rest.parent_path();
  while (!rest.empty() && rest != ".") {
    if (rest.filename() == ".." || rest.filename() != base.filename()) return {};
    rest = rest.parent_path();
    base = base.parent_path();
  }
  return base;
}

std::string absolute_path(const std::optional<fs::path>& base, const std::string& path) {
  if (path.empty() || (!base && fs::path(path).is_relative())) return path;
  const fs::path whole = base ? *base / path : fs::path(path);
  std::error_code error;
  fs::path found = fs::weakly_canonical(whole, error);
  if (error) found = whole.lexically_normal();
  std::string text = found.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

void add_phases(RunFacts& facts, const Recipe& recipe) {
  for (size_t i = 0; i < recipe.phases.size(); ++i) {
    const std::string name = fmt::format("phase {}: ", i + 1);
    facts.recipe[name + "from_step"] = std::to_string(recipe.phases[i].from_step);
    for (const auto& [key, value] : recipe.phases[i].settings) facts.recipe[name + key] = value;
    for (const std::string& result : recipe.phases[i].require) {
      std::string& all = facts.recipe[name + "require"];
      all += (all.empty() ? "" : ", ") + result;
    }
  }
}

void take_inputs(RunFacts& facts, const std::optional<fs::path>& base) {
  for (const auto& [key, value] : facts.recipe) {
    const size_t colon = key.find(": ");
    const std::string plain = colon == std::string::npos ? key : key.substr(colon + 2);
    if (std::find(kInputKeys.begin(), kInputKeys.end(), plain) == kInputKeys.end()) continue;
    if (const std::string path = unquoted(value); !path.empty())
      facts.inputs.push_back({.role = key, .path = absolute_path(base, path)});
  }
  for (const RunAttempt& a : facts.attempts)
    if (!a.from.empty()) facts.inputs.push_back({.role = "--from", .path = absolute_path(base, a.from)});
}

void take_recipe(RunFacts& facts) {
  const fs::path file = fs::path(facts.path) / "recipe.toml";
  if (!is_plain_file(file, kMostRecipeBytes))
    throw FileError(fmt::format("{}: is missing: what was trained is not known", file.string()));
  Recipe recipe = parse_recipe_file(file.string(), {});
  for (const RecipeKey& key : recipe_keys(recipe))
    if (std::string value = value_of(key); !value.empty()) facts.recipe[key.name] = std::move(value);
  if (Islands islands = parse_islands_file(file.string(), {}); islands.are_joined())
    for (const RecipeKey& key : island_keys(islands)) facts.recipe[key.name] = value_of(key);
  add_phases(facts, recipe);
  facts.model = recipe.model.path;
  facts.objective = std::string(name_of(recipe.train.objective));
  facts.train_iters = recipe.train.train_iters;
  const auto base = base_folder(facts, recipe.run.dir);
  take_inputs(facts, base);
  facts.data.clear();
  attempt_to(facts, [&] {
    const fs::path data = fs::path(facts.path) / "data.json";
    if (!is_plain_file(data, kMostDataBytes)) return;  // a run that ended before its first step
    const nlohmann::json json = read_json_file(data);
    const JsonFields fields(json, data.string());
    facts.data_order = fields.string("order", "");
    facts.data = run_sources_of(fields.list("train", "a list of files"), data.string());
    for (RunSource& source : facts.data) source.dataset = absolute_path(base, source.dataset);
  });
}

// --- checkpoints ---

void take_checkpoints(RunFacts& facts) {
  if (!is_folder(fs::path(facts.path) / "checkpoints")) return;
  const std::vector<fs::path> folders = checkpoint_folders(facts.path);
  if (folders.size() > kMostCheckpoints)
    facts.problems.push_back(fmt::format("{}: has {} checkpoints: only the {} newest are looked at",
                                         facts.path + "/checkpoints", folders.size(), kMostCheckpoints));
  const size_t first = folders.size() - std::min(folders.size(), kMostCheckpoints);
  for (size_t i = first; i < folders.size(); ++i) {
    CheckpointFacts c{.step = step_of(folders[i]), .bytes = bytes_below(folders[i])};
    attempt_to(facts, [&] {
      const fs::path state = folders[i] / "weft" / "state.json";
      if (!is_plain_file(state, kMostDataBytes))
        throw FileError(fmt::format("{}: is missing: it is no checkpoint to go on from", state.string()));
      if (const auto held_out = read_progress(folders[i]).held_out) c.held_out_loss = held_out->loss;
    });
    facts.checkpoints.push_back(c);
  }
}

}  // namespace

std::string_view name_of(RunStatus status) { return kStatusNames[size_t(status)]; }

std::optional<RunStatus> run_status_of(std::string_view name) {
  for (size_t i = 0; i < kStatusNames.size(); ++i)
    if (kStatusNames[i] == name) return RunStatus(i);
  return {};
}

std::vector<std::string> run_status_names() { return {kStatusNames.begin(), kStatusNames.end()}; }

bool is_run_folder(const fs::path& folder) {
  if (begins_with_mark(folder / "recipe.toml")) return true;
  return is_file(folder / "metrics.jsonl") && (is_folder(folder / "checkpoints") || is_file(folder / "run.lock"));
}

RunStatus status_now(const RunFacts& facts) {
  if (!is_folder(facts.path)) return RunStatus::away;
  if (is_owned(facts.path)) return RunStatus::running;
  if (facts.recipe.empty()) return RunStatus::unreadable;
  const bool is_done = facts.train_iters > 0 && facts.step >= facts.train_iters;
  if (facts.attempts.empty()) return is_done ? RunStatus::finished : RunStatus::unfinished;
  const auto& end = facts.attempts.back().end;
  if (!end) return is_done ? RunStatus::finished : RunStatus::lost;
  if (end->status == 0 && is_done) return RunStatus::finished;
  if (end->status == 0) return RunStatus::unfinished;  // its recipe has more steps now
  if (end->status == kStoppedBySignal || end->status == kStoppedByCtrlC) return RunStatus::stopped;
  return RunStatus::failed;
}

RunFacts read_run_facts(const fs::path& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error) throw FileError(fmt::format("{}: cannot be found: {}", folder.string(), error.message()));
  if (!is_folder(path))
    throw FileError(fmt::format("{}: is no folder; name a run's folder (run.dir)", folder.string()));
  if (!is_run_folder(path))
    throw FileError(
        fmt::format("{}: is no run's folder: it has neither a recipe.toml that weft wrote nor "
                    "metrics.jsonl beside checkpoints; name a run.dir of `weft train`",
                    folder.string()));
  RunFacts facts{.path = path.string(), .id = id_of_run(path)};
  attempt_to(facts, [&] { facts.attempts = read_attempts(path, facts.problems); });
  attempt_to(facts, [&] { take_recipe(facts); });
  attempt_to(facts, [&] {
    const fs::path metrics = path / "metrics.jsonl";
    if (!fs::exists(metrics)) return;
    MetricsSummary sum = summarize_metrics(metrics);
    facts.step = sum.last_step;
    facts.busy_s = sum.busy_s;
    facts.results = std::move(sum.results);
    if (sum.damaged_lines > 0)
      facts.problems.push_back(fmt::format("{}: {} line{} no record: passed over", metrics.string(), sum.damaged_lines,
                                           sum.damaged_lines == 1 ? " is" : "s are"));
  });
  attempt_to(facts, [&] { take_checkpoints(facts); });
  if (!facts.checkpoints.empty()) facts.step = std::max(facts.step, facts.checkpoints.back().step);
  facts.began_s = facts.attempts.empty() ? time_of(path / "run.lock") : facts.attempts.front().began_s;
  facts.last_s = std::max(time_of(path / "metrics.jsonl"), facts.began_s);
  facts.status = status_now(facts);
  return facts;
}

std::string stamp_of_run(const fs::path& folder) {
  std::string stamp;
  for (const char* name : {"recipe.toml", "metrics.jsonl", "attempts.jsonl", "data.json", "checkpoints", "."}) {
    struct stat s = {};
    if (::stat((folder / name).c_str(), &s) != 0) {
      stamp += "- ";
      continue;
    }
    const bool is_file = S_ISREG(s.st_mode);
    stamp +=
        fmt::format("{}.{:09}:{}:{} ", s.st_mtim.tv_sec, s.st_mtim.tv_nsec, is_file ? int64_t(s.st_size) : 0, s.st_ino);
  }
  return stamp;
}

std::string id_of_run(const fs::path& path) { return to_hex(hash128(path.string())).substr(0, 10); }

}  // namespace weft
