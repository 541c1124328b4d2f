#include "weft/history/run_scan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/nearest.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFolders = 1'000'000;  // that one root is looked through for
constexpr size_t kMostNamed = 10;           // runs in a message
constexpr size_t kShortestId = 4;

class FolderSearch {
 public:
  FolderSearch(std::set<std::string>& found, std::vector<std::string>& notes) : found_(found), notes_(notes) {}

  void look_into(const fs::path& folder, int depth) {
    if (is_run_folder(folder)) {
      found_.insert(folder.string());
      return;
    }
    if (++looked_ > kMostFolders || depth > kDeepestRun) {
      if (!std::exchange(is_cut_, true))
        notes_.push_back(fmt::format("{}: is not looked into: name a folder nearer to the runs", folder.string()));
      return;
    }
    std::error_code error;
    std::vector<fs::directory_entry> entries;
    fs::directory_iterator at(folder, error);
    for (; !error && at != fs::directory_iterator(); at.increment(error)) entries.push_back(*at);
    if (error) notes_.push_back(fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
    for (const fs::directory_entry& e : entries) look_at(e, depth);
  }

 private:
  void look_at(const fs::directory_entry& entry, int depth) {
    std::error_code error;
    if (entry.path().filename().string().starts_with(".") || !entry.is_directory(error)) return;
    if (entry.path().extension() == ".removing") return;  // what a removal of a run has left behind
    if (!entry.is_symlink(error)) return look_into(entry.path(), depth + 1);
    if (!is_run_folder(entry.path())) return;
    const fs::path real = fs::canonical(entry.path(), error);
    if (!error) found_.insert(real.string());
  }

  std::set<std::string>& found_;
  std::vector<std::string>& notes_;
  size_t looked_ = 0;
  bool is_cut_ = false;
};

bool is_in(const std::string& path, const std::string& root) {
  return path == root || path.starts_with(root.ends_with('/') ? root : root + "/");
}

std::string as_text(const RunFacts& facts) {
  return to_json(facts).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// What the index remembers of an unchanged run; none where that is of no use.
std::optional<RunFacts> remembered(const RunIndex::Entry& entry) {
  try {
    RunFacts facts = run_facts_of(parse_json(entry.facts, "the index"), "the index");
    facts.path = entry.path;  // whatever bytes it has
    return facts;
  } catch (const Error&) { return {}; }
}

std::string listed(const std::vector<const RunFacts*>& runs) {
  std::string text;
  for (size_t i = 0; i < runs.size() && i < kMostNamed; ++i)
    text += fmt::format("\n  {}  {}", runs[i]->id, runs[i]->path);
  if (runs.size() > kMostNamed) text += fmt::format("\n  and {} more", runs.size() - kMostNamed);
  return text;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string root_of(const fs::path& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error) throw FileError(fmt::format("{}: cannot be found: {}", folder.string(), error.message()));
  if (!fs::is_directory(path, error)) throw FileError(fmt::format("{}: is no folder", folder.string()));
  return path.string();
}

std::vector<std::string> find_run_folders(const fs::path& root, std::vector<std::string>& notes) {
  std::set<std::string> found;
  FolderSearch(found, notes).look_into(root_of(root), 0);
  return {found.begin(), found.end()};
}

namespace {

struct Scan {
  ScannedRuns scanned = {};
  std::vector<RunIndex::Entry> changed = {};  // beside what is known
  std::vector<std::string> gone = {};
};

Scan scan(const std::set<std::string>& roots, const std::map<std::string, RunIndex::Entry>& known, ScanWay way) {
  Scan s;
  s.scanned.roots.assign(roots.begin(), roots.end());
  std::set<std::string> there;
  std::vector<std::string> away;
  for (const std::string& root : roots) {
    std::error_code error;
    if (!fs::is_directory(root, error)) {
      away.push_back(root);
      s.scanned.notes.push_back(fmt::format("{}: is not there now: its runs are told as they were", root));
      continue;
    }
    for (std::string& path : find_run_folders(root, s.scanned.notes)) there.insert(std::move(path));
  }
  for (const std::string& path : there) {
    const auto before = known.find(path);
    const std::string stamp = stamp_of_run(path);  // before it is read: what changes meanwhile is read again
    std::optional<RunFacts> facts;
    if (way == ScanWay::what_changed && before != known.end() && before->second.stamp == stamp)
      facts = remembered(before->second);
    if (facts) {
      facts->status = status_now(*facts);
    } else {
      try {
        facts = read_run_facts(path);
      } catch (const std::exception& e) {
        s.scanned.notes.push_back(fmt::format("{}: is left out: {}", path, e.what()));
        continue;
      }
      ++s.scanned.num_read;
      s.changed.push_back({.path = path, .stamp = stamp, .facts = as_text(*facts)});
    }
    s.scanned.runs.push_back(std::move(*facts));
  }
  for (const auto& [path, entry] : known) {
    if (there.contains(path)) continue;
    const bool is_away =
        std::any_of(away.begin(), away.end(), [&, &p = path](const auto& root) { return is_in(p, root); });
    auto facts = is_away ? remembered(entry) : std::nullopt;
    if (!facts) {
      s.gone.push_back(path);
      continue;
    }
    facts->status = RunStatus::away;
    s.scanned.runs.push_back(std::move(*facts));
  }
  std::sort(s.scanned.runs.begin(), s.scanned.runs.end(),
            [](const RunFacts& a, const RunFacts& b) { return a.path < b.path; });
  return s;
}

}  // namespace

ScannedRuns scan_runs(RunIndex& index, ScanWay way, const std::vector<std::string>& more) {
  std::map<std::string, RunIndex::Entry> known;
  for (RunIndex::Entry& e : index.runs()) known.emplace(e.path, std::move(e));
  std::set<std::string> roots(more.begin(), more.end());
  for (const std::string& root : index.roots()) roots.insert(root);
  Scan s = scan(roots, known, way);
  try {
    index.update(s.changed, s.gone);
  } catch (const FileError& e) {
    s.scanned.notes.push_back(fmt::format("the index was not brought up to date: {}", e.what()));
  }
  return std::move(s.scanned);
}

ScannedRuns scan_folders(const std::vector<std::string>& roots) {
  return scan({roots.begin(), roots.end()}, {}, ScanWay::everything).scanned;
}

const RunFacts& find_run(const std::vector<RunFacts>& runs, const std::string& name, RunNaming naming) {
  const std::string wanted = without_slashes(name);
  std::error_code error;
  const std::string real = fs::weakly_canonical(wanted, error).string();
  const bool is_here = is_name_taken(wanted);
  std::vector<const RunFacts*> found;
  std::vector<std::string> names;
  for (const RunFacts& r : runs) {
    if (r.path == wanted || (!error && r.path == real)) return r;
    const bool is_id = wanted.size() >= kShortestId && r.id.starts_with(wanted);
    const bool is_end = naming == RunNaming::by_end && !wanted.empty() && r.path.ends_with("/" + wanted);
    if (is_id || is_end) found.push_back(&r);
    names.push_back(fs::path(r.path).filename().string());
  }
  if (is_here)
    throw ConfigError(
        fmt::format("{}: is here, and no run that is known; `weft runs list FOLDER` makes those in and "
                    "below a folder known",
                    in_quotes(name)));
  if (found.size() == 1) return *found[0];
  if (found.size() > 1)
    throw ConfigError(fmt::format("{} may be {} runs: name one by its id or more of its path{}", in_quotes(name),
                                  found.size(), listed(found)));
  const std::string near = nearest_name(wanted, names);
  throw ConfigError(
      fmt::format("{}: no such run is known{}{}; `weft runs list FOLDER` makes those below a folder known",
                  in_quotes(name), naming == RunNaming::exactly ? " by its folder or id" : "",
                  near.empty() ? "" : fmt::format(": did you mean {}?", near)));
}

}  // namespace weft
