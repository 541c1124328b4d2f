#include "weft/apps/rank_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "weft/apps/supervised_attempt.h"
#include "weft/base/host_name.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::string whole(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<int> number_in(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Looks in the text of /proc/PID/environ, where each variable ends with a zero byte.
std::optional<std::string> variable(const std::string& environment, const std::string& name) {
  for (size_t at = 0; at < environment.size();) {
    const size_t end = std::min(environment.find('\0', at), environment.size());
    if (environment.compare(at, name.size(), name) == 0 && environment[at + name.size()] == '=')
      return environment.substr(at + name.size() + 1, end - at - name.size() - 1);
    at = end + 1;
  }
  return {};
}

// User and system time. fields: those of /proc/PID/stat (proc(5)) from the third, the state, on.
int64_t cpu_ticks(const std::string& fields) {
  constexpr int kBefore = 11;  // of these, up to utime and stime
  std::istringstream in(fields);
  std::string skipped;
  for (int i = 0; i < kBefore; ++i) in >> skipped;
  int64_t user = 0, system = 0;
  in >> user >> system;
  return user + system;
}

std::optional<RankProcessHere> process_at(const fs::path& folder) {
  const std::optional<int> id = number_in(folder.filename().string());
  if (!id) return {};
  const std::string stat = whole(folder / "stat");
  const size_t name_end = stat.rfind(") ");  // proc(5): "123 (name) S parent ..."
  if (name_end == std::string::npos || name_end + 4 >= stat.size()) return {};
  RankProcessHere p{.id = *id, .stopped = stat[name_end + 2] == 'T', .ended = stat[name_end + 2] == 'Z'};
  p.parent = std::atoi(stat.c_str() + name_end + 4);
  p.cpu = cpu_ticks(stat.substr(name_end + 2));
  const std::string environment = whole(folder / "environ");
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"})
    if (const auto rank = variable(environment, name); rank && p.rank < 0) p.rank = number_in(*rank).value_or(-1);
  p.job = variable(environment, "PMIX_NAMESPACE").value_or("");
  constexpr std::string_view kProc = "/proc/";  // a descriptor of its supervisor's
  if (const auto file = variable(environment, kHeartbeatFile);
      file && file->starts_with(kProc) && variable(environment, kSupervisorHost) == name_of_host())
    p.supervisor = std::atoi(file->c_str() + kProc.size());
  return p;
}

}  // namespace

std::vector<RankProcessHere> processes_here() {
  std::vector<RankProcessHere> all;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error))
    if (std::optional<RankProcessHere> p = process_at(at->path())) all.push_back(std::move(*p));
  return all;
}

std::vector<RankProcessHere> below(pid_t ancestor, const std::vector<RankProcessHere>& all) {
  std::vector<RankProcessHere> found;
  std::vector<pid_t> parents{ancestor};
  while (!parents.empty()) {
    const pid_t parent = parents.back();
    parents.pop_back();
    for (const RankProcessHere& p : all) {
      if (p.parent != parent || p.id == parent) continue;
      found.push_back(p);
      parents.push_back(p.id);
    }
  }
  return found;
}

std::string StoppedWatch::look(const std::vector<RankProcessHere>& processes) {
  std::map<pid_t, Seen> now;
  std::string found;
  for (const RankProcessHere& p : processes) {
    if (!p.stopped) continue;
    const auto before = stopped_.find(p.id);
    const bool is_still = before != stopped_.end() && before->second.cpu == p.cpu;
    now[p.id] = {.looks = is_still ? before->second.looks + 1 : 1, .cpu = p.cpu};
    if (now[p.id].looks <= patience_) continue;
    const std::string who = p.rank >= 0 ? fmt::format("rank {} (process {} on host {})", p.rank, p.id, name_of_host())
                                        : fmt::format("mpirun's process {} on host {}", p.id, name_of_host());
    found += fmt::format("{}{}", found.empty() ? "" : ", and ", who);
  }
  stopped_ = std::move(now);
  return found.empty() ? "" : fmt::format("{} has been stopped by a signal for {} s", found, patience_);
}

}  // namespace weft
