#include "weft/base/memory_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

namespace weft {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> number_of(const fs::path& file) {
  std::ifstream in(file);
  int64_t number = 0;
  if (in >> number) return number;
  return {};  // not there, or "max"
}

// The number behind a word, in a file with a line for each.
std::optional<int64_t> number_behind(const fs::path& file, const std::string& word) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string name;
    int64_t number = 0;
    if (fields >> name >> number && name == word) return number;
  }
  return {};
}

// A folder of the memory controller, of version 1 or 2.
struct Group {
  fs::path folder;
  bool v1 = false;
  std::string name;  // in messages
};

// A mount of control groups: where it is, and which group stands at its top.
struct Mount {
  std::string top, at;
  bool v1 = false;
};

// Lines of mountinfo, proc(5): "36 35 98:0 /top /at options - type source super,options".
std::optional<Mount> mount_in(const std::string& line) {
  std::istringstream fields(line);
  std::string skipped, type, source, options;
  Mount mount;
  fields >> skipped >> skipped >> skipped >> mount.top >> mount.at;
  while (fields >> skipped && skipped != "-") continue;
  fields >> type >> source >> options;
  mount.v1 = type == "cgroup";
  const bool has_memory = ("," + options + ",").find(",memory,") != std::string::npos;
  return type == "cgroup2" || (mount.v1 && has_memory) ? std::optional(mount) : std::nullopt;
}

// This process's group in that mount, by a line "4:memory:/a/b" or "0::/a/b" of /proc/self/cgroup.
std::optional<std::string> group_path(const fs::path& root, bool v1) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (v1 ? controllers.find(",memory,") != std::string::npos : controllers == ",,") return line.substr(second + 1);
  }
  return {};
}

// The groups from this process's own up to the mounted top: each may have a limit.
std::vector<Group> groups(const fs::path& root) {
  std::vector<Group> all;
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const std::optional<Mount> mount = mount_in(line);
    const std::optional<std::string> path = mount ? group_path(root, mount->v1) : std::nullopt;
    if (!path) continue;
    // In a container the top of the mount is often the container's group, or the path is of the host's view.
    std::string within = path->starts_with(mount->top == "/" ? "" : mount->top)
                             ? path->substr(mount->top == "/" ? 0 : mount->top.size())
                             : "";
    if (within.find("..") != std::string::npos) within = "";  // of another view of the groups
    const fs::path at = root / fs::path(mount->at).relative_path();
    std::error_code ignored;
    for (;; within = within.substr(0, within.rfind('/'))) {
      const fs::path folder = within.empty() ? at : at / fs::path(within).relative_path();
      if (fs::is_directory(folder, ignored))
        all.push_back({folder, mount->v1, fmt::format("control group {}", within.empty() ? "/" : within)});
      if (within.rfind('/') == std::string::npos) break;
    }
  }
  return all;
}

std::optional<int64_t> limit_of(const Group& g) {
  if (g.v1) {
    const std::optional<int64_t> limit = number_of(g.folder / "memory.limit_in_bytes");
    return limit && *limit < std::numeric_limits<int64_t>::max() / 2 ? limit : std::nullopt;
  }
  const std::optional<int64_t> most = number_of(g.folder / "memory.max"), high = number_of(g.folder / "memory.high");
  return most && high ? std::min(most, high) : most ? most : high;
}

// Memory in use, without caches that the kernel can drop.
int64_t used_by(const Group& g) {
  const auto used = number_of(g.folder / (g.v1 ? "memory.usage_in_bytes" : "memory.current")).value_or(0);
  const std::string total = g.v1 ? "total_" : "";
  int64_t cached = 0;
  for (const char* list : {"inactive_file", "active_file"})
    cached += number_behind(g.folder / "memory.stat", total + list).value_or(0);
  return std::max<int64_t>(0, used - cached);
}

void take_least(std::optional<MemoryLimit>& least, MemoryLimit one) {
  one.bytes = std::max<int64_t>(0, one.bytes);
  if (!least || one.bytes < least->bytes) least = std::move(one);
}

}  // namespace

std::string gib_text(int64_t bytes) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  return double(bytes) < kGiB ? fmt::format("{:.0f} MiB", double(bytes) / kMiB)
                              : fmt::format("{:.2f} GiB", double(bytes) / kGiB);
}

std::optional<MemoryLimit> memory_left_here(const fs::path& root) {
  std::optional<MemoryLimit> least;
  const fs::path info = root / "proc/meminfo";
  const auto available = number_behind(info, "MemAvailable:"), total = number_behind(info, "MemTotal:");
  if (available && total)
    take_least(least, {*available * 1024, fmt::format("{} of the {} of this machine are available",
                                                      gib_text(*available * 1024), gib_text(*total * 1024))});
  for (const Group& g : groups(root)) {
    const std::optional<int64_t> limit = limit_of(g);
    if (!limit) continue;
    const int64_t left = std::max<int64_t>(0, *limit - used_by(g));
    take_least(least,
               {left, fmt::format("{} of the {} that {} may take are left", gib_text(left), gib_text(*limit), g.name)});
  }
  return least;
}

std::optional<MemoryLimit> memory_left_to_a_process(const fs::path& root) {
  struct Own {
    decltype(RLIMIT_AS) resource;  // an enumeration or an int, as the C library has it
    const char *line, *what;
  };
  std::optional<MemoryLimit> least;
  for (const Own& own : {Own{RLIMIT_AS, "VmSize:", "ulimit -v"}, Own{RLIMIT_DATA, "VmData:", "ulimit -d"}}) {
    rlimit limit{};
    if (::getrlimit(own.resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const int64_t used = number_behind(root / "proc/self/status", own.line).value_or(0) * 1024;
    const int64_t most = int64_t(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
    take_least(least,
               {most - used, fmt::format("{} of the {} that a process may map ({}) are left",
                                         gib_text(std::max<int64_t>(0, most - used)), gib_text(most), own.what)});
  }
  return least;
}

std::optional<int64_t> kills_for_memory(const fs::path& root) {
  std::optional<int64_t> kills;
  for (const Group& g : groups(root)) {
    const auto of_group = number_behind(g.folder / (g.v1 ? "memory.oom_control" : "memory.events"), "oom_kill");
    if (of_group) kills = std::max(kills.value_or(0), *of_group);
  }
  return kills ? kills : number_behind(root / "proc/vmstat", "oom_kill");
}

}  // namespace weft
