#include "weft/apps/runs.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/commands.h"
#include "weft/apps/launch.h"
#include "weft/apps/report.h"
#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/nearest.h"
#include "weft/history/run_diff.h"
#include "weft/history/run_gc.h"
#include "weft/history/run_lineage.h"
#include "weft/history/run_scan.h"
#include "weft/recipe/recipe.h"
#include "weft/records/clock.h"
#include "weft/records/progress.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

static_assert(kStoppedBySignal == kExitPreempted && kStoppedByCtrlC == kExitInterrupted);

// --- the index and the runs in it ---

fs::path index_file_of(const RunsOptions& o) {
  if (!o.index.empty()) return o.index;
  if (const auto state = environment("XDG_STATE_HOME"); state && fs::path(*state).is_absolute())
    return fs::path(*state) / "weft" / "runs.db";
  if (const auto home = environment("HOME"); home && fs::path(*home).is_absolute())
    return fs::path(*home) / ".local" / "state" / "weft" / "runs.db";
  throw ConfigError("where the index of runs is to lie is not known, as HOME is not set: name it with --index FILE");
}

ScannedRuns scan_index(const RunsOptions& o, std::vector<std::string>& roots, ScanWay way) {
  RunIndex index(index_file_of(o));
  if (roots.empty() && index.roots().empty()) {
    if (!is_there("runs"))
      throw ConfigError(
          "no runs are known: name a folder in which they lie, as `weft runs list FOLDER`; it is looked "
          "through again each time");
    roots.push_back(root_of("runs"));  // where recipes put them
  }
  if (!roots.empty()) index.add_roots(roots);
  return scan_runs(index, way);
}

// All runs in and below the roots, after the folders named here have become roots. Where there can be no index, those
// of these folders alone.
ScannedRuns known_runs(const RunsOptions& o, const std::vector<std::string>& folders = {},
                       ScanWay way = ScanWay::what_changed) {
  std::vector<std::string> roots;
  for (const std::string& folder : folders) roots.push_back(root_of(folder));
  ScannedRuns scanned;
  try {
    scanned = scan_index(o, roots, way);
  } catch (const FileError& e) {
    if (folders.empty()) throw;  // nothing else says where runs are
    scanned = scan_folders(roots);
    std::cerr << "note: these folders alone are looked through, without an index: " << e.what() << "\n";
  }
  for (const std::string& note : scanned.notes) std::cerr << "note: " << note << "\n";
  return scanned;
}

// The folder of a run as it is now, or else a run that is known.
RunFacts run_named(const RunsOptions& o, const std::string& name) {
  if (is_there(name)) return read_run_facts(name);
  return find_run(known_runs(o).runs, name);
}

}  // namespace

RunFacts run_to_compare(const RunsOptions& o, const std::string& name) {
  RunFacts run = run_named(o, name);
  if (run.recipe.empty())
    throw FileError(fmt::format("{}: cannot be compared: {}", run.path, fmt::join(run.problems, "; ")));
  return run;
}

namespace {

// --- texts ---

void print(const Report& report, bool json) {
  if (json)
    std::cout << report.dump(1, ' ', false, Report::error_handler_t::replace) << "\n";
  else
    std::cout << to_text(report);
}

std::string short_path(const std::string& path) {
  std::error_code error;
  const std::string here = fs::current_path(error).string() + "/";
  return !error && path.starts_with(here) ? path.substr(here.size()) : path;
}

std::string date_text(double time_s) {
  if (!(time_s > 0) || time_s > 1e11) return "-";
  const auto whole = time_t(time_s);
  struct tm parts = {};
  char text[32] = "";
  if (::localtime_r(&whole, &parts) == nullptr || ::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts) == 0)
    return "-";
  return text;
}

// A value for a column.
std::string cut_text(std::string text) {
  constexpr size_t kMost = 60;  // bytes
  return text.size() <= kMost ? text : text.substr(0, kMost - 3) + "...";
}

std::string number_text(double value) { return fmt::format("{:.6g}", value); }

Report result_in_column(const RunFacts& r, const std::string& name) {
  const auto at = r.results.find(name);
  return at == r.results.end() ? Report(nullptr) : Report(number_text(at->second.value));
}

std::string steps_text(const RunFacts& r) {
  return r.train_iters > 0 ? fmt::format("{}/{}", r.step, r.train_iters) : std::to_string(r.step);
}

Report row_of(const RunFacts& r) {
  return {{"id", r.id},
          {"run", short_path(r.path)},
          {"status", name_of(r.status)},
          {"steps", steps_text(r)},
          {"objective", r.objective},
          {"model", cut_text(r.model)},
          {"loss", result_in_column(r, "loss")},
          {"held_out_loss", result_in_column(r, "held_out.loss")},
          {"began", date_text(r.began_s)}};
}

// --- filters ---

// Seconds since 1970 of "2026-11-28" (its beginning, here) or "7d" (so long ago).
double time_of_filter(const std::string& option, const std::string& text) {
  struct tm parts = {};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%d", &parts);
  if (end != nullptr && *end == '\0') {
    parts.tm_isdst = -1;
    return double(::mktime(&parts));
  }
  int64_t days = 0;
  for (size_t i = 0; i + 1 < text.size() && days >= 0; ++i)
    days = is_ascii_digit(text[i]) && days < 1'000'000 ? 10 * days + (text[i] - '0') : -1;
  if (text.size() < 2 || text.back() != 'd' || days < 0)
    throw ConfigError(
        fmt::format("{} {}: expected a day, as 2026-11-28, or days from now back, as 7d", option, in_quotes(text)));
  return wall_time_s() - 86400 * double(days);
}

std::vector<RunFacts> filtered(std::vector<RunFacts> runs, const RunsFilter& f) {
  std::vector<RunStatus> wanted;
  for (const std::string& name : f.status)
    if (const auto status = run_status_of(name)) wanted.push_back(*status);
  const std::optional<double> since =
      f.since.empty() ? std::nullopt : std::optional(time_of_filter("--since", f.since));
  const std::optional<double> until =
      f.until.empty() ? std::nullopt : std::optional(time_of_filter("--until", f.until));
  std::erase_if(runs, [&](const RunFacts& r) {
    return (!wanted.empty() && std::find(wanted.begin(), wanted.end(), r.status) == wanted.end()) ||
           r.model.find(f.model) == std::string::npos || (!f.objective.empty() && r.objective != f.objective) ||
           (since && r.began_s < *since) || (until && r.began_s >= *until);
  });
  return runs;
}

// --- show ---

// What the recipe says that is not so by default.
Report own_settings(const RunFacts& r) {
  Report own = Report::object();
  std::map<std::string, std::string> usual;
  for (const KeyHelp& key : recipe_help()) usual[key.key] = key.fallback;
  for (const auto& [key, value] : r.recipe)
    if (const auto at = usual.find(key); at == usual.end() || at->second != value) own[key] = cut_text(value);
  return own;
}

Report attempts_table(const RunFacts& r) {
  Report rows = Report::array();
  for (const RunAttempt& a : r.attempts)
    rows.push_back({{"began", date_text(a.began_s)},
                    {"ended", a.end ? Report(date_text(a.end->time_s)) : Report(nullptr)},
                    {"exit_status", a.end ? Report(std::to_string(a.end->status)) : Report(nullptr)},
                    {"ranks", a.ranks},
                    {"host", a.host},
                    {"machine", a.machine},
                    {"weft", fmt::format("{}, build {}", a.weft, a.program.substr(0, 12))},
                    {"reason", a.end ? cut_text(a.end->reason.substr(0, a.end->reason.find('\n'))) : ""}});
  return rows;
}

Report text_of_run(const RunFacts& r) {
  Report report{{"id", r.id},
                {"path", r.path},
                {"status", name_of(r.status)},
                {"steps", steps_text(r)},
                {"began", date_text(r.began_s)},
                {"last_record", date_text(r.last_s)},
                {"busy", format_duration(r.busy_s)}};
  if (!r.problems.empty()) report["problems"] = r.problems;
  const auto add = [&](const char* key, Report rows) {
    if (!rows.empty()) report[key] = std::move(rows);
  };
  Report results = Report::array(), data = Report::array(), inputs = Report::array(), saved = Report::array();
  for (const auto& [name, result] : r.results)
    results.push_back({{"result", name}, {"value", number_text(result.value)}, {"step", result.step}});
  for (const RunSource& s : r.data)
    data.push_back({{"file", s.path}, {"contents", s.contents}, {"dataset", s.dataset}, {"version", s.version}});
  for (const RunInput& input : r.inputs) inputs.push_back({{"read_as", input.role}, {"path", input.path}});
  for (const CheckpointFacts& c : r.checkpoints)
    saved.push_back({{"step", c.step},
                     {"bytes", c.bytes},
                     {"held_out_loss", c.held_out_loss ? Report(number_text(*c.held_out_loss)) : Report(nullptr)}});
  add("results", std::move(results));
  add("data", std::move(data));
  add("inputs", std::move(inputs));
  add("checkpoints", std::move(saved));
  add("attempts", attempts_table(r));
  add("recipe_beside_defaults", own_settings(r));
  return report;
}

// --- diff ---

Report result_row(const ResultDifference& d) {
  const auto text = [](const std::optional<RunResult>& r) {
    return r ? Report(fmt::format("{} (step {})", number_text(r->value), r->step)) : Report(nullptr);
  };
  Report row{{"result", d.name}, {"a", text(d.a)}, {"b", text(d.b)}, {"b_minus_a", nullptr}, {"better", nullptr}};
  if (!d.a || !d.b) return row;
  const double more = d.b->value - d.a->value;
  row["b_minus_a"] = fmt::format("{:+.4g}", more);
  if (is_judged(d.name)) row["better"] = more == 0 ? "equal" : (more < 0) == less_is_better(d.name) ? "b" : "a";
  return row;
}

Report diff_report(const RunFacts& a, const RunFacts& b, const RunDiff& diff) {
  const auto title = [](const RunFacts& r) {
    return fmt::format("{} ({}), {}, {} steps", short_path(r.path), r.id, name_of(r.status), steps_text(r));
  };
  Report report{{"a", title(a)}, {"b", title(b)}};
  if (diff.differences.empty()) {
    report["likely_matters_first"] =
        diff.not_known.empty() ? "nothing: recipe, data, code and machine are the same" : "nothing that is known";
  } else {
    const RunDifference& first = diff.differences.front();
    report["likely_matters_first"] = fmt::format("{}: {}", first.what, reason_of(first.bearing));
  }
  report["differences"] = Report::array();
  for (const RunDifference& d : diff.differences)
    report["differences"].push_back({{"bears_on", name_of(d.bearing)}, {"what", d.what}, {"a", d.a}, {"b", d.b}});
  report["results"] = Report::array();
  for (const ResultDifference& d : diff.results) report["results"].push_back(result_row(d));
  if (!diff.not_known.empty()) report["not_known"] = diff.not_known;
  if (!diff.notes.empty()) report["notes"] = diff.notes;
  return report;
}

// --- compare ---

std::string column_of(size_t run) { return std::string(1, char('a' + run)); }

Report compared_run(const RunFacts& r, size_t i) {
  const RunAttempt attempt = r.attempts.empty() ? RunAttempt() : r.attempts.back();
  return {
      {"column", column_of(i)},
      {"run", short_path(r.path)},
      {"id", r.id},
      {"status", name_of(r.status)},
      {"steps", steps_text(r)},
      {"busy", format_duration(r.busy_s)},
      {"host", attempt.host},
      {"machine", attempt.machine},
      {"weft", attempt.weft.empty() ? "" : fmt::format("{}, build {}", attempt.weft, attempt.program.substr(0, 12))}};
}

// A result of each run, and the columns of those that have the best.
Report compared_result(const std::vector<RunFacts>& runs, const std::string& name, bool json) {
  Report row{{"result", name}};
  double best = 0;
  std::string of;  // empty: there is none yet
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto at = runs[i].results.find(name);
    const bool has = at != runs[i].results.end();
    row[column_of(i)] = !has ? Report(nullptr) : json ? Report(at->second.value) : result_in_column(runs[i], name);
    if (!has || !is_judged(name)) continue;
    const double value = at->second.value;
    if (less_is_better(name) ? value < best : value > best) of.clear();
    if (of.empty()) best = value;
    if (value == best) of += (of.empty() ? "" : ", ") + column_of(i);
  }
  row["best"] = of.empty() ? Report(nullptr) : Report(of);
  return row;
}

Report compare_report(const std::vector<RunFacts>& runs, bool json) {
  const RunTable table = compare_runs(runs);
  Report report{{"runs", Report::array()}, {"differences", Report::array()}, {"results", Report::array()}};
  std::string page = "weft watch";
  for (size_t i = 0; i < runs.size(); ++i) {
    report["runs"].push_back(compared_run(runs[i], i));
    page += " " + in_quotes(short_path(runs[i].path));
  }
  for (const RunTable::Row& d : table.differences) {
    Report row{{"bears_on", name_of(d.bearing)}, {"what", d.what}};
    for (size_t i = 0; i < runs.size(); ++i) row[column_of(i)] = json ? d.values[i] : cut_text(d.values[i]);
    report["differences"].push_back(row);
  }
  for (const std::string& name : table.results) report["results"].push_back(compared_result(runs, name, json));
  for (const char* name : {"differences", "results"})
    if (!json && report[name].empty()) report.erase(name);
  if (!table.not_known.empty()) report["not_known"] = table.not_known;
  if (!table.notes.empty()) report["notes"] = table.notes;
  report["page"] = page;
  return report;
}

// --- best ---

// Runs whose losses are of other texts, or of other tokens, do not compare.
void note_other_measures(const std::vector<RunFacts>& runs, const std::string& by) {
  if (by != "loss" && !by.starts_with("held_out.")) return;
  for (const char* key : kMeasureKeys) {
    std::vector<std::string> values;
    for (const RunFacts& r : runs) {
      const auto at = r.recipe.find(key);
      values.push_back(at == r.recipe.end() ? "" : at->second);
    }
    if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end())
      std::cerr << fmt::format("note: these runs have other values of {}: their losses may be of different things\n",
                               key);
  }
}

[[noreturn]] void refuse_result(const std::vector<RunFacts>& runs, const std::string& by) {
  std::vector<std::string> names;
  for (const RunFacts& r : runs)
    for (const auto& [name, result] : r.results)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::sort(names.begin(), names.end());
  const std::string near = nearest_name(by, names);
  throw ConfigError(fmt::format("--by {}: none of {} runs has such a result{}{}", in_quotes(by), runs.size(),
                                near.empty() ? "" : fmt::format("; did you mean {}?", near),
                                names.empty() ? "" : fmt::format("; there are: {}", fmt::join(names, ", "))));
}

// --- gc ---

Report gc_report(const GcPlan& plan) {
  Report report = Report::object();
  Report rows = Report::array(), kept = Report::array();
  for (const Removable& one : plan.removable)
    rows.push_back({{"path", short_path(one.path)}, {"bytes", one.bytes}, {"why", one.why}});
  for (const KeptBack& one : plan.kept) kept.push_back({{"path", short_path(one.path)}, {"read_as", one.why}});
  report["can_be_removed"] = rows.empty() ? Report("nothing") : rows;
  if (!rows.empty()) report["all_bytes"] = plan.bytes();
  if (!kept.empty()) report["stays_because_others_read_it"] = kept;
  return report;
}

bool is_agreed(const RunsGcOptions& o, const GcPlan& plan) {
  if (o.yes) return true;
  if (::isatty(STDIN_FILENO) == 0) {
    std::cerr << "nothing is removed: nobody can be asked here, and --yes was not given\n";
    return false;
  }
  std::cout.flush();
  std::cerr << fmt::format("Remove these {} folders ({}) for good? [y/N] ", plan.removable.size(),
                           format_bytes(double(plan.bytes())));
  std::string answer;
  std::getline(std::cin, answer);
  answer = lower_ascii(answer);
  if (answer == "y" || answer == "yes") return true;
  std::cerr << "nothing is removed\n";
  return false;
}

}  // namespace

int run_runs_list(const RunsListOptions& o) {
  const std::vector<RunFacts> runs = filtered(known_runs(o, o.folders).runs, o);
  if (o.json) {
    Report all = Report::array();
    for (const RunFacts& r : runs) all.push_back(to_json(r));
    print(all, true);
    return kExitOk;
  }
  Report rows = Report::array();
  for (const RunFacts& r : runs) rows.push_back(row_of(r));
  print({{"runs", rows.empty() ? Report("none") : rows}}, false);
  return kExitOk;
}

int run_runs_scan(const RunsScanOptions& o) {
  if (o.forget) {
    if (o.folders.empty()) throw ConfigError("--forget: name the folders that are no longer to be looked through");
    RunIndex index(index_file_of(o));
    for (const std::string& folder : o.folders) {
      std::error_code error;  // it may be gone
      const fs::path path = fs::weakly_canonical(folder, error);
      std::string root = error ? folder : path.string();
      while (root.size() > 1 && root.back() == '/') root.pop_back();
      const auto roots = index.roots();
      if (std::find(roots.begin(), roots.end(), root) == roots.end())
        throw ConfigError(fmt::format("{}: is not looked through; these are: {}", root, fmt::join(roots, ", ")));
      index.remove_root(root);
    }
    return kExitOk;
  }
  const ScannedRuns scanned = known_runs(o, o.folders, o.rebuild ? ScanWay::everything : ScanWay::what_changed);
  Report report{{"index", index_file_of(o).string()}, {"runs", scanned.runs.size()}, {"read_anew", scanned.num_read}};
  Report with_problems = Report::array();
  for (const RunFacts& r : scanned.runs)
    for (const std::string& problem : r.problems) with_problems.push_back(problem);
  if (!with_problems.empty()) report["problems"] = with_problems;
  report["looked_through"] = scanned.roots;
  print(report, o.json);
  return kExitOk;
}

int run_runs_show(const RunsShowOptions& o) {
  const RunFacts run = run_named(o, o.run);
  print(o.json ? Report(to_json(run)) : text_of_run(run), o.json);
  return kExitOk;
}

int run_runs_compare(const RunsCompareOptions& o) {
  std::vector<RunFacts> runs;
  for (const std::string& name : o.runs) runs.push_back(run_to_compare(o, name));
  print(compare_report(runs, o.json), o.json);
  return kExitOk;
}

int run_runs_diff(const RunsDiffOptions& o) {
  const RunFacts a = run_to_compare(o, o.runs.at(0)), b = run_to_compare(o, o.runs.at(1));
  Report report = diff_report(a, b, diff_runs(a, b));
  if (!o.json)
    for (Report& row : report["differences"])
      for (const char* side : {"a", "b"}) row[side] = cut_text(row[side].get<std::string>());
  for (const char* table : {"differences", "results"})
    if (!o.json && report[table].empty()) report.erase(table);
  print(report, o.json);
  return kExitOk;
}

int run_runs_best(const RunsBestOptions& o) {
  const std::vector<RunFacts> all = filtered(known_runs(o).runs, o);
  std::vector<RunFacts> runs = all;
  std::erase_if(runs, [&](const RunFacts& r) { return !r.results.contains(o.by); });
  if (runs.empty()) refuse_result(all, o.by);
  const bool lowest = o.lowest || (!o.highest && less_is_better(o.by));
  const auto value = [&](const RunFacts& r) { return r.results.at(o.by).value; };
  std::stable_sort(runs.begin(), runs.end(), [&](const RunFacts& a, const RunFacts& b) {
    return lowest ? value(a) < value(b) : value(a) > value(b);
  });
  runs.resize(std::min(runs.size(), size_t(o.most)));
  note_other_measures(runs, o.by);
  Report rows = Report::array();
  for (const RunFacts& r : runs) {
    const RunResult& result = r.results.at(o.by);
    const bool is_saved = std::any_of(r.checkpoints.begin(), r.checkpoints.end(),
                                      [&](const CheckpointFacts& c) { return c.step == result.step; });
    rows.push_back({{"id", r.id},
                    {"run", o.json ? r.path : short_path(r.path)},
                    {"status", name_of(r.status)},
                    {"value", o.json ? Report(result.value) : Report(number_text(result.value))},
                    {"step", result.step},
                    {"checkpoint", is_saved ? Report(fmt::format("step-{}", result.step)) : Report(nullptr)}});
  }
  print({{"best", fmt::format("{} {}", lowest ? "lowest" : "highest", o.by)}, {"runs", rows}}, o.json);
  return kExitOk;
}

int run_runs_lineage(const RunsLineageOptions& o) {
  const std::vector<RunFacts> runs = known_runs(o).runs;
  Lineage lineage = lineage_of(runs);
  std::string path;
  if (!o.of.empty()) {
    std::error_code error;
    const std::string real = fs::weakly_canonical(o.of, error).string();
    const bool is_node = std::any_of(lineage.nodes.begin(), lineage.nodes.end(),
                                     [&](const Lineage::Node& n) { return !error && n.path == real; });
    path = is_node ? real : find_run(runs, o.of).path;
    lineage = lineage_around(lineage, path);
  } else if (!o.json && !o.dot) {
    throw ConfigError(
        "name a run, a checkpoint, a dataset or a model's folder; --dot and --json also give all at once");
  }
  if (o.json)
    print(to_json(lineage), true);
  else
    std::cout << (o.dot ? lineage_dot(lineage) : lineage_text(lineage, path));
  return kExitOk;
}

int run_runs_gc(const RunsGcOptions& o) {
  // Everything is read: what the index remembers of a run's inputs may be true no longer.
  const std::vector<RunFacts> runs = known_runs(o, {}, ScanWay::everything).runs;
  GcWish wish{.runs = {}, .keep = o.keep, .whole = o.whole};
  for (const std::string& name : o.runs) wish.runs.push_back(find_run(runs, name, RunNaming::exactly).path);
  const GcPlan plan = plan_gc(runs, wish);
  for (const std::string& note : plan.notes) std::cerr << "note: " << note << "\n";
  print(gc_report(plan), o.json);
  if (plan.removable.empty() || !is_agreed(o, plan)) return kExitOk;
  const GcResult result = remove_planned(plan, wish, [&] {
    RunIndex index(index_file_of(o));
    return scan_runs(index, ScanWay::everything).runs;
  });
  for (const std::string& note : result.notes) std::cerr << "note: " << note << "\n";
  std::cerr << fmt::format("removed {} of {} folders, {}\n", result.num_removed, plan.removable.size(),
                           format_bytes(double(result.bytes)));
  return result.num_removed == plan.removable.size() ? kExitOk : kExitFailure;
}

}  // namespace weft
