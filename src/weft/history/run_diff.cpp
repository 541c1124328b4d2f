#include "weft/history/run_diff.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "weft/base/error.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 10> kBearingNames = {"data",     "task", "length",  "learning", "chance",
                                                            "rounding", "code", "machine", "names",    "manner"};
constexpr std::array<std::string_view, 10> kReasons = {
    "they learnt from, or were measured on, other tokens, or had them in another order",
    "they trained another model, or for something else",
    "one of them has learnt for longer",
    "they made other steps",
    "only chance differs: seeds alone move a loss a little, up or down",
    "only rounding differs: sums have other types or orders",
    "another build of weft: the same bits are not promised",
    "other hardware: speed differs, and the last bits may",
    "only names differ: the bytes are the same",
    "nothing that a result depends on"};

// Keys whose differences move results most, within what they bear on.
constexpr std::array<std::string_view, 10> kFirstKeys = {"data files",       "data.train",
                                                         "model.path",       "model.init",
                                                         "train.objective",  "optimizer.lr",
                                                         "optimizer.min_lr", "train.global_batch_size",
                                                         "train.seq_length", "optimizer.lr_decay_style"};
// Keys that change how much work is done at once, or how numbers are kept: results differ by rounding.
constexpr std::array<std::string_view, 11> kRoundingKeys = {
    "train.precision",  "train.numerics",          "train.grad_reduce_dtype",  "train.micro_batch_size",
    "train.loss_scale", "train.hysteresis",        "train.initial_loss_scale", "train.min_loss_scale",
    "run.backend",      "train.loss_scale_window", "optimizer.min_8bit_size"};
constexpr std::array<std::string_view, 3> kLengthKeys = {"train.train_iters", "train.epochs", "steps done"};

template <size_t N>
size_t place_in(const std::array<std::string_view, N>& names, std::string_view name) {
  return size_t(std::find(names.begin(), names.end(), name) - names.begin());
}
template <size_t N>
bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
  return place_in(names, name) < N;
}

template <class Difference>
bool matters_before(const Difference& x, const Difference& y) {
  return std::pair(x.bearing, place_in(kFirstKeys, x.what)) < std::pair(y.bearing, place_in(kFirstKeys, y.what));
}

std::string or_not_known(const std::string& text) { return text.empty() ? "not known" : text; }
std::string value_in(const RunFacts& run, const std::string& key) {
  const auto at = run.recipe.find(key);
  return at == run.recipe.end() ? "not set" : at->second;
}

// "tokens.bin (1f3a)", or a dataset's folder and version, once for all its files.
std::string data_text(const RunFacts& run) {
  std::vector<std::string> all;
  for (const RunSource& s : run.data) {
    const std::string one = s.dataset.empty() ? fmt::format("{} ({})", s.path, s.contents.substr(0, 12))
                                              : fmt::format("{} (version {})", s.dataset, s.version.substr(0, 12));
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  }
  return or_not_known(fmt::format("{}", fmt::join(all, ", ")));
}

std::vector<std::string> contents_of(const RunFacts& run) {
  std::vector<std::string> all;
  for (const RunSource& s : run.data) all.push_back(s.contents);
  return all;
}

class Differences {
 public:
  Differences(const RunFacts& a, const RunFacts& b) : a_(a), b_(b) {
    has_same_data_ = !a.data.empty() && contents_of(a) == contents_of(b);
  }
  std::vector<RunDifference> all() {
    add_data();
    add_keys();
    add_inputs();
    if (a_.step != b_.step)
      add(Bearing::length, "steps done", fmt::format("{} of {}", a_.step, a_.train_iters),
          fmt::format("{} of {}", b_.step, b_.train_iters));
    add_code_and_machine();
    std::stable_sort(found_.begin(), found_.end(), matters_before<RunDifference>);
    return std::move(found_);
  }

 private:
  void add(Bearing bearing, std::string what, std::string a, std::string b) {
    found_.push_back({.bearing = bearing, .what = std::move(what), .a = std::move(a), .b = std::move(b)});
  }
  // What was read, whatever it was called.
  void add_data() {
    if (has_same_data_ || (a_.data.empty() && b_.data.empty())) return;
    add(Bearing::data, "data files", data_text(a_), data_text(b_));
  }
  void add_keys() {
    std::set<std::string> keys;
    for (const auto& [key, value] : a_.recipe) keys.insert(key);
    for (const auto& [key, value] : b_.recipe) keys.insert(key);
    for (const std::string& key : keys) {
      const std::string a = value_in(a_, key), b = value_in(b_, key);
      if (a != b && key != "run.dir") add(bearing_of_name(key), key, a, b);
    }
  }
  // The same name may be that of another file, seen from another folder.
  void add_inputs() {
    const auto paths_in = [](const RunFacts& run) {
      std::map<std::string, std::string> paths;
      for (const RunInput& input : run.inputs)
        if (std::string& all = paths[input.role]; input.role != "data.json")
          all += (all.empty() ? "" : ", ") + input.path;
      return paths;
    };
    const auto a = paths_in(a_), b = paths_in(b_);
    std::set<std::string> roles;
    for (const auto* paths : {&a, &b})
      for (const auto& [role, path] : *paths) roles.insert(role);
    const auto at = [](const auto& paths, const std::string& role) {
      const auto found = paths.find(role);
      return found == paths.end() ? std::string("none") : found->second;
    };
    for (const std::string& role : roles)
      if (at(a, role) != at(b, role) && value_in(a_, role) == value_in(b_, role))
        add(role == "--from" ? Bearing::task : bearing_of_name(role), role, at(a, role), at(b, role));
  }
  Bearing bearing_of_name(const std::string& key) const {
    const bool names_data =
        key == "data.train" || key == "data.pairs" || key == "data.rollouts" || key == "data.examples";
    return names_data && has_same_data_ ? Bearing::names : bearing_of_key(key);
  }
  void add_code_and_machine() {
    const RunAttempt none;
    const RunAttempt& a = a_.attempts.empty() ? none : a_.attempts.back();
    const RunAttempt& b = b_.attempts.empty() ? none : b_.attempts.back();
    if (a.weft != b.weft)
      add(Bearing::code, "code", or_not_known(a.weft), or_not_known(b.weft));
    else if (a.program != b.program)
      add(Bearing::code, "code",
          fmt::format("{}, build {}", or_not_known(a.weft), or_not_known(a.program.substr(0, 12))),
          fmt::format("{}, build {}", or_not_known(b.weft), or_not_known(b.program.substr(0, 12))));
    if (a.machine != b.machine) add(Bearing::machine, "machine", or_not_known(a.machine), or_not_known(b.machine));
    if (a.host != b.host) add(Bearing::machine, "host", or_not_known(a.host), or_not_known(b.host));
  }

  const RunFacts &a_, &b_;
  bool has_same_data_ = false;
  std::vector<RunDifference> found_;
};

std::optional<RunResult> result_in(const RunFacts& run, const std::string& name) {
  const auto at = run.results.find(name);
  return at == run.results.end() ? std::nullopt : std::optional(at->second);
}

// Held-out losses are of the texts that were held out, in the tokens of the tokenizer.
std::vector<std::string> notes_on(const RunFacts& a, const RunFacts& b) {
  std::vector<std::string> notes;
  for (const char* key : kMeasureKeys)
    if (value_in(a, key) != value_in(b, key))
      notes.push_back(fmt::format("{} differs: their losses may be of different things", key));
  if (a.step != b.step)
    notes.push_back(fmt::format("results are after {} and {} steps: losses of other moments", a.step, b.step));
  if (a.status == RunStatus::running || b.status == RunStatus::running)
    notes.push_back("a run that goes on will have other results");
  return notes;
}

std::vector<std::string> not_known_of(const RunFacts& a, const RunFacts& b) {
  std::vector<std::string> all;
  if (a.data.empty() || b.data.empty()) all.emplace_back("data files");
  if (a.attempts.empty() || b.attempts.empty()) all.emplace_back("code, machine");
  std::set<std::string> roles;
  for (const RunFacts* run : {&a, &b})
    for (const RunInput& input : run->inputs)
      if (!input.path.starts_with('/')) roles.insert(input.role);
  for (const std::string& role : roles) all.push_back(fmt::format("from which folder {} is seen", role));
  return all;
}

}  // namespace

std::string_view name_of(Bearing bearing) { return kBearingNames[size_t(bearing)]; }
std::string_view reason_of(Bearing bearing) { return kReasons[size_t(bearing)]; }

Bearing bearing_of_key(const std::string& key) {
  const size_t colon = key.find(": ");  // "phase 1: optimizer.lr"
  const std::string plain = colon == std::string::npos ? key : key.substr(colon + 2);
  const std::string section = plain.substr(0, plain.find('.'));
  if (is_among(kRoundingKeys, plain) || section == "parallel") return Bearing::rounding;
  if (is_among(kLengthKeys, plain)) return Bearing::length;
  if (plain == "train.seed") return Bearing::chance;
  if (plain == "data.valid" || plain == "data.valid_fraction") return Bearing::data;
  if (section == "model" || section == "objective" || section == "adapter" || section == "moe" ||
      plain == "train.objective" || plain == "train.mtp_loss_coef")
    return Bearing::task;
  if (plain == "train.on_spike" || plain == "train.max_spikes" || plain.starts_with("train.spike_"))
    return Bearing::learning;  // free when a run is resumed, and yet it decides which updates are made
  for (const KeyHelp& one : recipe_help())
    if (one.key == plain && one.may_change) return Bearing::manner;
  if (section == "data") return Bearing::data;
  if (section == "checkpoint" || section == "run" || section == "fleet" || section == "eval") return Bearing::manner;
  return Bearing::learning;
}

RunDiff diff_runs(const RunFacts& a, const RunFacts& b) {
  RunDiff diff{
      .differences = Differences(a, b).all(), .results = {}, .notes = notes_on(a, b), .not_known = not_known_of(a, b)};
  std::set<std::string> names;
  for (const auto& [name, result] : a.results) names.insert(name);
  for (const auto& [name, result] : b.results) names.insert(name);
  for (const std::string& name : names)
    diff.results.push_back({.name = name, .a = result_in(a, name), .b = result_in(b, name)});
  return diff;
}

RunTable compare_runs(const std::vector<RunFacts>& runs) {
  RunTable table;
  std::set<std::string> names, said;
  const auto add_new = [&](std::vector<std::string>& all, const std::vector<std::string>& more) {
    for (const std::string& one : more)
      if (said.insert(one).second) all.push_back(one);
  };
  const auto row_of = [&](const RunDifference& d) -> RunTable::Row& {
    for (RunTable::Row& row : table.differences)
      if (row.what == d.what) return row;
    // Where a run differs from the first in nothing, it has what that has.
    return table.differences.emplace_back(RunTable::Row{d.bearing, d.what, std::vector(runs.size(), d.a)});
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [name, result] : runs[i].results) names.insert(name);
    if (i == 0) continue;
    const RunDiff diff = diff_runs(runs[0], runs[i]);
    for (const RunDifference& d : diff.differences) {
      RunTable::Row& row = row_of(d);
      row.values[i] = d.b;
      row.bearing = std::min(row.bearing, d.bearing);
    }
    add_new(table.notes, diff.notes);
    add_new(table.not_known, diff.not_known);
  }
  std::stable_sort(table.differences.begin(), table.differences.end(), matters_before<RunTable::Row>);
  table.results = {names.begin(), names.end()};
  return table;
}

}  // namespace weft
