#include "weft/apps/orphans.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "weft/apps/rank_processes.h"
#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Numbers of processes mean the same to both: containers have their own.
bool counts_processes_as_this(pid_t process) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/ns/pid", error);
  return !error && fs::read_symlink(fmt::format("/proc/{}/ns/pid", process), error) == here && !error;
}

std::vector<pid_t> orphaned_processes() {
  const std::vector<RankProcessHere> all = processes_here();
  const auto is_gone = [&](pid_t id) {  // one that is not among them may have begun since
    const auto at = std::find_if(all.begin(), all.end(), [&](const RankProcessHere& p) { return p.id == id; });
    return at != all.end() ? at->ended : ::kill(id, 0) != 0 && errno == ESRCH;
  };
  std::vector<pid_t> orphans;
  for (const RankProcessHere& p : all)
    if (p.supervisor > 0 && !p.ended && is_gone(p.supervisor) && counts_processes_as_this(p.id))
      orphans.push_back(p.id);
  return orphans;
}

std::vector<pid_t> end_orphaned_processes(double grace_s) {
  constexpr double kEnd_s = 5;
  std::vector<pid_t> ended;
  for (const double began = now_s();;) {
    const std::vector<pid_t> left = orphaned_processes();
    const double waited = now_s() - began;
    if (left.empty() || waited > grace_s + kEnd_s) return ended;
    for (const pid_t id : left)
      if (waited >= grace_s && ::kill(id, SIGKILL) == 0 && std::find(ended.begin(), ended.end(), id) == ended.end())
        ended.push_back(id);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Whether it is this user's and was last changed some seconds ago: who makes one maps it right then.
bool is_own_and_settled(const fs::path& path) {
  constexpr double kSettled_s = 10;
  struct stat s = {};
  return ::lstat(path.c_str(), &s) == 0 && s.st_uid == ::geteuid() && wall_time_s() - double(s.st_mtime) > kSettled_s;
}

// The lines of /proc/PID/maps that name shared memory of Open MPI. A process that may not be read is no rank of this
// user's: it may do more, as a container's first.
std::string mapped_segments() {
  std::string mapped;
  for (const RankProcessHere& p : processes_here()) {
    std::ifstream in(fmt::format("/proc/{}/maps", p.id));
    for (std::string line; std::getline(in, line);)
      if (line.find("_segment.") != std::string::npos) mapped += line + "\n";
  }
  return mapped;
}

void remove_with(const fs::path& path, std::vector<std::string>& removed) {
  std::error_code error;
  if (fs::remove_all(path, error) > 0 && !error) removed.push_back(path.string());
}

std::vector<fs::path> in_folder(const fs::path& folder, const std::vector<std::string>& beginnings) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    for (const std::string& one : beginnings)
      if (at->path().filename().string().starts_with(one)) found.push_back(at->path());
  return found;
}

// "vader_segment.HOST.USER.JOB.RANK"
void remove_segments(const std::string& folder, std::vector<std::string>& removed) {
  const std::string of = fmt::format("_segment.{}.{}.", name_of_host(), ::geteuid());
  std::vector<fs::path> found = in_folder(folder, {"vader" + of, "sm" + of});
  std::erase_if(found, [](const fs::path& file) { return !is_own_and_settled(file); });
  if (found.empty()) return;
  const std::string mapped = mapped_segments();
  for (const fs::path& file : found)
    if (mapped.find(file.filename().string()) == std::string::npos) remove_with(file, removed);
}

// "ompi.HOST.USER/pid.MPIRUN"
void remove_sessions(const std::string& folder, std::vector<std::string>& removed) {
  constexpr std::string_view kHead = "pid.";
  const fs::path sessions = fs::path(folder) / fmt::format("ompi.{}.{}", name_of_host(), ::geteuid());
  for (const fs::path& one : in_folder(sessions, {std::string(kHead)})) {
    const int launcher = std::atoi(one.filename().c_str() + kHead.size());
    if (launcher > 0 && ::kill(launcher, 0) != 0 && errno == ESRCH && is_own_and_settled(one))
      remove_with(one, removed);
  }
}

}  // namespace

Orphans reclaim_orphans(const OrphanPlaces& places) {
  Orphans found{.processes = end_orphaned_processes(places.grace_s), .files = {}};
  remove_segments(places.shared_memory, found.files);
  remove_sessions(places.temporary, found.files);
  return found;
}

}  // namespace weft
