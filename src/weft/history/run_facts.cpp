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
#include <set>
#include <utility>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/plain_file.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/history/program_id.h"
#include "weft/history/written_at.h"
#include "weft/recipe/islands.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/records/clock.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/run_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostRecipeBytes = 4 << 20, kMostDataBytes = 64 << 20;
constexpr size_t kMostCheckpoints = 10'000;
constexpr std::array<std::string_view, 8> kStatusNames = {"running", "finished",   "stopped",    "failed",
                                                          "lost",    "unfinished", "unreadable", "away"};
// Keys that name files or folders, or lists of them; in "piqa=piqa.jsonl" what stands behind the sign.
constexpr std::array<std::string_view, 15> kPathKeys = {
    "model.path",          "adapter.path",   "objective.teacher", "objective.teacher_logits",
    "objective.reference", "data.train",     "data.valid",        "data.loss_mask",
    "data.pairs",          "data.rollouts",  "data.examples",     "eval.tasks",
    "eval.fewshot_from",   "eval.bad_words", "fleet.hosts"};
// Keys that name these, or something that weft knows ("byte", "chatml", "H100-SXM").
constexpr std::array<std::string_view, 3> kPathOrNameKeys = {"data.tokenizer", "data.chat_template", "fleet.cluster"};

template <size_t N>
bool has_name(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "optimizer.lr" of "phase 1: optimizer.lr".
std::string without_phase(const std::string& key) {
  const size_t colon = key.find(": ");
  return colon == std::string::npos ? key : key.substr(colon + 2);
}

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
  std::string head(kRunRecipeMark.size(), '\0');
  return in.read(head.data(), std::streamsize(head.size())) && head == kRunRecipeMark;
}

// Whether another process owns the folder. RunLock waits for longer than the lock is shared here. On a file system
// without locks: whether it has written a record of late.
bool is_owned(const fs::path& run) {
  constexpr double kOfLateS = 600;
  const fs::path file = run / "run.lock";
  if (!is_file(file)) return false;
  const Descriptor fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd < 0 || ::flock(fd, LOCK_SH | LOCK_NB) == 0) return false;
  return errno == EWOULDBLOCK || wall_time_s() - written_at(run / "metrics.jsonl") < kOfLateS;
}

// Runs `read`; what it throws becomes a problem.
void attempt_to(RunFacts& facts, const std::function<void()>& read) {
  try {
    read();
  } catch (const std::exception& e) { facts.problems.emplace_back(e.what()); }
}

// --- the recipe ---

// A text of TOML, or those of a list, as recipes print them.
std::vector<std::string> texts_in(const std::string& toml) {
  const auto value = nlohmann::json::parse(toml, nullptr, /*allow_exceptions=*/false);
  if (value.is_string()) return {value.get<std::string>()};
  std::vector<std::string> texts;
  if (value.is_array())
    for (const auto& one : value)
      if (one.is_string()) texts.push_back(one.get<std::string>());
  return texts;
}

using Bases = std::vector<fs::path>;

// The folders that the run's relative paths may be seen from, the likeliest first: where its last attempt was started;
// and what RUN ends with run.dir below, as the project may have been moved, or seen elsewhere in a container.
Bases base_folders(const RunFacts& facts, const fs::path& run_dir) {
  Bases bases;
  for (auto a = facts.attempts.rbegin(); a != facts.attempts.rend() && bases.empty(); ++a)
    if (!a->folder.empty()) bases.emplace_back(a->folder);
  if (run_dir.empty() || run_dir.is_absolute()) return bases;
  fs::path base = facts.path, rest = run_dir.lexically_normal();
  if (rest.filename().empty()) rest = rest.parent_path();
  for (; !rest.empty() && rest != "."; rest = rest.parent_path(), base = base.parent_path())
    if (rest.filename() == ".." || rest.filename() != base.filename()) return bases;
  if (bases.empty() || bases[0] != base) bases.push_back(base);
  return bases;
}

std::string absolute_path(const fs::path& whole) {
  std::error_code error;
  fs::path found = fs::weakly_canonical(whole, error);
  if (error) found = whole.lexically_normal();
  std::string text = found.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// Where it may be: each place that is there, else the likeliest one. Of a relative path without bases: as it is.
std::vector<std::string> places_of(const Bases& bases, const std::string& path) {
  if (path.empty() || (bases.empty() && fs::path(path).is_relative())) return {path};
  std::vector<std::string> all, there;
  if (fs::path(path).is_absolute()) all.push_back(absolute_path(path));
  for (size_t i = 0; i < bases.size() && fs::path(path).is_relative(); ++i)
    all.push_back(absolute_path(bases[i] / path));
  for (const std::string& place : all)
    if (is_there(place) && std::find(there.begin(), there.end(), place) == there.end()) there.push_back(place);
  return there.empty() ? std::vector{all[0]} : there;
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

void add_inputs(RunFacts& facts, const std::string& role, const std::vector<std::string>& places) {
  for (const std::string& place : places) facts.inputs.push_back({.role = role, .path = place});
}

// A text that is a path if it leads somewhere, or looks like one.
void add_if_path(RunFacts& facts, const Bases& bases, const std::string& role, const std::string& text) {
  const std::vector<std::string> places = places_of(bases, text);
  const bool is_found = fs::path(places[0]).is_absolute() && is_there(places[0]);
  if (is_found || text.find('/') != std::string::npos) add_inputs(facts, role, places);
}

void take_inputs(RunFacts& facts, const Bases& bases) {
  for (const auto& [key, value] : facts.recipe) {
    const std::string plain = without_phase(key);
    if (!names_files(plain)) continue;
    for (std::string text : texts_in(value)) {
      if (plain.starts_with("eval.")) text.erase(0, text.find('=') + 1);  // npos + 1 is 0
      if (has_name(kPathOrNameKeys, plain))
        add_if_path(facts, bases, key, text);
      else if (!text.empty())
        add_inputs(facts, key, places_of(bases, text));
    }
  }
  for (const RunAttempt& a : facts.attempts)
    if (!a.from.empty()) add_inputs(facts, "--from", places_of(bases, a.from));
}

// What a recipe that cannot be understood may read: any text in quotes that may be a path.
void take_quoted_texts(RunFacts& facts, const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  for (std::string line; std::getline(in, line);)
    for (size_t at = 0, end; (at = line.find_first_of("\"'", at)) != std::string::npos; at = end + 1) {
      end = line.find(line[at], at + 1);
      if (end == std::string::npos) break;
      add_if_path(facts, base_folders(facts, {}), "recipe.toml", line.substr(at + 1, end - at - 1));
    }
}

// Files that the run has read and its recipe does not name, as those of a dataset that was elsewhere then.
void take_data_files(RunFacts& facts, const Bases& bases) {
  std::set<fs::path> named;
  for (const RunInput& input : facts.inputs) named.insert(input.path);
  const auto is_named = [&](fs::path at) {
    for (; !named.contains(at); at = at.parent_path())
      if (!at.has_relative_path()) return false;
    return true;
  };
  for (const RunSource& source : facts.data)
    for (const std::string& text : {source.path, source.dataset})
      for (const std::string& place : text.empty() ? std::vector<std::string>() : places_of(bases, text))
        if (!is_named(place)) add_inputs(facts, "data.json", {place});
}

void drop_repeated(std::vector<RunInput>& inputs) {
  std::set<std::pair<std::string, std::string>> seen;
  std::erase_if(inputs, [&](const RunInput& input) { return !seen.emplace(input.role, input.path).second; });
}

void take_recipe(RunFacts& facts) {
  const fs::path file = fs::path(facts.path) / "recipe.toml";
  if (!is_plain_file(file, kMostRecipeBytes))
    throw FileError(fmt::format("{}: is missing: what was trained is not known", file.string()));
  Recipe recipe;
  try {
    recipe = parse_recipe_file(file.string(), {});
  } catch (const Error&) {
    take_quoted_texts(facts, file);
    throw;
  }
  for (const RecipeKey& key : recipe_keys(recipe))
    if (std::string value = value_of(key); !value.empty()) facts.recipe[key.name] = std::move(value);
  if (Islands islands = parse_islands_file(file.string(), {}); islands.are_joined())
    for (const RecipeKey& key : island_keys(islands)) facts.recipe[key.name] = value_of(key);
  add_phases(facts, recipe);
  facts.model = recipe.model.path;
  facts.objective = std::string(name_of(recipe.train.objective));
  facts.train_iters = recipe.train.train_iters;
  const Bases bases = base_folders(facts, recipe.run.dir);
  take_inputs(facts, bases);
  facts.data.clear();
  attempt_to(facts, [&] {
    const fs::path data = fs::path(facts.path) / "data.json";
    if (!is_plain_file(data, kMostDataBytes)) return;  // a run that ended before its first step
    const nlohmann::json json = read_json_file(data);
    const JsonFields fields(json, data.string());
    facts.data_order = fields.string("order", "");
    facts.data = run_sources_of(fields.list("train", "a list of files"), data.string());
    for (RunSource& source : facts.data) source.dataset = places_of(bases, source.dataset)[0];
    take_data_files(facts, bases);
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
  if (folder.extension() == ".removing") return false;  // what a removal of one has left behind
  if (begins_with_mark(folder / "recipe.toml")) return true;
  return is_file(folder / "metrics.jsonl") && (is_folder(folder / "checkpoints") || is_file(folder / "run.lock"));
}

bool names_files(const std::string& key) { return has_name(kPathKeys, key) || has_name(kPathOrNameKeys, key); }

RunStatus status_now(const RunFacts& facts) {
  return is_folder(facts.path) && is_owned(facts.path) ? RunStatus::running : status_at_rest(facts);
}

RunStatus status_at_rest(const RunFacts& facts) {
  if (!is_folder(facts.path)) return RunStatus::away;
  if (facts.recipe.empty()) return RunStatus::unreadable;
  const bool is_done = facts.train_iters > 0 && facts.step >= facts.train_iters;
  const bool is_saved = is_done && !facts.checkpoints.empty() && facts.checkpoints.back().step >= facts.train_iters;
  if (facts.attempts.empty()) return is_saved ? RunStatus::finished : RunStatus::unfinished;
  const auto& end = facts.attempts.back().end;
  if (!end) return is_saved ? RunStatus::finished : RunStatus::lost;
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
  drop_repeated(facts.inputs);
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
  facts.began_s = facts.attempts.empty() ? written_at(path / "run.lock") : facts.attempts.front().began_s;
  facts.last_s = std::max(written_at(path / "metrics.jsonl"), facts.began_s);
  facts.status = status_now(facts);
  return facts;
}

std::string stamp_of_run(const fs::path& folder) {
  std::string all = id_of_this_program();
  const auto add = [&](const fs::path& path) {
    struct stat s = {};
    if (::stat(path.c_str(), &s) != 0) {
      all += " -";
      return;
    }
    const int64_t bytes = S_ISREG(s.st_mode) ? int64_t(s.st_size) : 0;
    all += fmt::format(" {}.{:09}:{}:{}", s.st_mtim.tv_sec, s.st_mtim.tv_nsec, bytes, s.st_ino);
  };
  for (const char* name : {"recipe.toml", "metrics.jsonl", "attempts.jsonl", "data.json", "checkpoints", "."})
    add(folder / name);
  for (const fs::path& checkpoint : checkpoint_folders(folder)) add(checkpoint / "weft" / "state.json");
  return to_hex(hash128(all));
}

std::string id_of_run(const fs::path& path) { return to_hex(hash128(path.string())).substr(0, 10); }

}  // namespace weft
