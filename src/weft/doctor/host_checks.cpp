#include "weft/doctor/host_checks.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/threads.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/records/progress.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCpus = 4096;

// The first line of a file of the kernel's; none where it cannot be read.
std::optional<std::string> line_in(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) return {};
  return line;
}
std::optional<double> number_in(const fs::path& file) {
  const auto line = line_in(file);
  if (!line) return {};
  char* end = nullptr;
  const double value = std::strtod(line->c_str(), &end);
  return end == line->c_str() ? std::nullopt : std::optional(value);
}

// Of each core that has this file below its own folder.
std::vector<fs::path> of_cores(const fs::path& root, const char* file) {
  std::vector<fs::path> all;
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    const fs::path folder = root / "sys/devices/system/cpu" / fmt::format("cpu{}", cpu);
    std::error_code error;
    if (!fs::exists(folder, error)) break;
    if (fs::exists(folder / file, error)) all.push_back(folder / file);
  }
  return all;
}

// The bytes of a line "NAME:   123 kB" of /proc/meminfo.
std::optional<double> meminfo_bytes(const fs::path& root, const std::string& name) {
  std::ifstream in(root / "proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return 1024 * std::strtod(line.c_str() + name.size() + 1, nullptr);
  return {};
}

HealthFinding not_told(const char* what, const char* why = "the kernel does not tell, as in most virtual machines") {
  return {.verdict = HealthVerdict::unknown, .what = what, .found = why};
}
HealthFinding is_good(const char* what, std::string found) {
  return {.verdict = HealthVerdict::good, .what = what, .found = std::move(found)};
}

rlimit limit_of(decltype(RLIMIT_NOFILE) which) {
  rlimit limit = {};
  ::getrlimit(which, &limit);
  return limit;
}

}  // namespace

HealthFindings check_host(const HostUse& use, const fs::path& root) {
  return {check_governor(root),
          check_clock_cap(root),
          check_throttling(root),
          check_other_work(root, usable_cores()),
          check_huge_pages(root),
          check_numa(root),
          check_swap(root),
          check_clock_source(root),
          check_shared_memory(use, root),
          check_open_files(use),
          check_file_size(use),
          check_locked_memory(use)};
}

HealthFinding check_governor(const fs::path& root) {
  std::map<std::string, int> governors;
  for (const fs::path& file : of_cores(root, "cpufreq/scaling_governor"))
    if (const auto name = line_in(file)) ++governors[*name];
  if (governors.empty()) return not_told("clock governor");
  std::string text;
  for (const auto& [name, cores] : governors)
    text += fmt::format("{}{} on {} core{}", text.empty() ? "" : ", ", name, cores, cores == 1 ? "" : "s");
  const std::string driver = line_in(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver").value_or("");
  // There "powersave" follows the load; by other drivers it is the lowest clock, whatever there is to do.
  const bool follows_load = driver == "intel_pstate" || driver == "amd-pstate-epp";
  if (!governors.contains("powersave") || follows_load) return is_good("clock governor", text);
  return {.verdict = HealthVerdict::warning,
          .what = "clock governor",
          .found = text,
          .change = "cpupower frequency-set -g performance (as root; until the next start)",
          .cost = "these cores stay at their lowest clock, and all ranks wait for the slowest"};
}

HealthFinding check_clock_cap(const fs::path& root) {
  double least = 1, cap_khz = 0, most_khz = 0;
  bool is_known = false;
  for (const fs::path& file : of_cores(root, "cpufreq/scaling_max_freq")) {
    const auto cap = number_in(file), most = number_in(file.parent_path() / "cpuinfo_max_freq");
    if (!cap || !most || *most <= 0) continue;
    is_known = true;
    if (*cap / *most < least) least = *cap / *most, cap_khz = *cap, most_khz = *most;
  }
  if (!is_known) return not_told("clock cap");
  constexpr double kNear = 0.98;  // of the highest clock: rounded settings
  if (least >= kNear) return is_good("clock cap", "none below the highest clock");
  return {.verdict = HealthVerdict::warning,
          .what = "clock cap",
          .found = fmt::format("{:.0f} of {:.0f} MHz", cap_khz / 1000, most_khz / 1000),
          .change = fmt::format("cpupower frequency-set -u {:.0f}MHz (as root)", most_khz / 1000),
          .cost = fmt::format("what is bound by arithmetic takes up to {:.2f} times as long", 1 / least)};
}

HealthFinding check_throttling(const fs::path& root) {
  double events = 0;
  bool is_known = false;
  for (const fs::path& file : of_cores(root, "thermal_throttle/core_throttle_count"))
    if (const auto count = number_in(file)) events += *count, is_known = true;
  if (!is_known) return not_told("throttling by heat");
  if (events == 0) return is_good("throttling by heat", "none since the machine was started");
  return {.verdict = HealthVerdict::advice,
          .what = "throttling by heat",
          .found = fmt::format("{:.0f} times since the machine was started", events),
          .change = "look at its cooling; if the number grows while a run goes on, it is happening now",
          .cost = "hot cores are slower, and all ranks wait for the slowest"};
}

HealthFinding check_huge_pages(const fs::path& root) {
  const auto line = line_in(root / "sys/kernel/mm/transparent_hugepage/enabled");
  if (!line) return not_told("huge pages", "the kernel does not tell");
  if (line->find("[never]") == std::string::npos) return is_good("huge pages", *line);
  return {.verdict = HealthVerdict::warning,
          .what = "huge pages",
          .found = *line,
          .change = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root; until the next start)",
          .cost = "memory in pages of 4 KiB: large matrices walk many pages, and steps take longer"};
}

HealthFinding check_numa(const fs::path& root) {
  int nodes = 0;
  std::error_code error;
  while (fs::exists(root / "sys/devices/system/node" / fmt::format("node{}", nodes), error) && nodes < kMostCpus)
    ++nodes;
  if (nodes == 0) return not_told("memory nodes (NUMA)", "the kernel does not tell");
  if (nodes == 1) return is_good("memory nodes (NUMA)", "one");
  return {.verdict = HealthVerdict::advice,
          .what = "memory nodes (NUMA)",
          .found = fmt::format("{} nodes", nodes),
          .change = "numactl --interleave=all weft train ...: memory of all nodes in turn",
          .cost = "weft binds no thread to a node: some read memory of another one, at a fraction of the speed"};
}

HealthFinding check_swap(const fs::path& root) {
  const auto total = meminfo_bytes(root, "SwapTotal"), free = meminfo_bytes(root, "SwapFree");
  if (!total || !free) return not_told("swap", "the kernel does not tell");
  const double used = *total - *free;
  constexpr double kMuch = 256.0 * (1 << 20);  // bytes: what lies there of programs that nobody uses is less
  if (used < kMuch) return is_good("swap", used > 0 ? format_bytes(used) + " used" : "not used");
  return {.verdict = HealthVerdict::warning,
          .what = "swap",
          .found = format_bytes(used) + " used",
          .change = "end other programs, or use fewer ranks here (weft plan says what a rank needs)",
          .cost = "memory that comes back from a disk makes steps many times as long"};
}

HealthFinding check_other_work(const fs::path& root, int cores) {
  const auto load = number_in(root / "proc/loadavg");
  if (!load) return not_told("other work", "the kernel does not tell");
  const std::string text =
      fmt::format("{:.1f} of {} core{} busy, as a mean over the last minute", *load, cores, cores == 1 ? "" : "s");
  constexpr double kIdle = 0.2;  // of the cores
  if (*load <= std::max(0.5, kIdle * cores)) return is_good("other work", text);
  return {.verdict = HealthVerdict::warning,
          .what = "other work",
          .found = text,
          .change = "end it, or leave it cores: run.threads",
          .cost = "ranks that share their cores make all others wait, and measurements of speed are wrong"};
}

HealthFinding check_clock_source(const fs::path& root) {
  const auto source = line_in(root / "sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (!source) return not_told("clock source", "the kernel does not tell");
  if (*source != "hpet" && *source != "acpi_pm") return is_good("clock source", *source);
  return {.verdict = HealthVerdict::advice,
          .what = "clock source",
          .found = *source,
          .change = "see the kernel's log for why tsc was given up; clocksource=tsc at its start chooses it",
          .cost = "each look at the clock takes about a microsecond: traces and waits of many ranks are slower"};
}

HealthFinding check_shared_memory(const HostUse& use, const fs::path& root) {
  struct statvfs shm = {};
  if (::statvfs((root / "dev/shm").c_str(), &shm) != 0)
    return use.ranks_are_processes
               ? HealthFinding{.verdict = HealthVerdict::warning,
                               .what = "shared memory",
                               .found = "there is no /dev/shm",
                               .change = "mount a tmpfs there",
                               .cost = "ranks of this host speak by slower means, or cannot start"}
               : not_told("shared memory", "there is no /dev/shm, which ranks as threads do not need");
  const double bytes = double(shm.f_bavail) * double(shm.f_frsize);
  const std::string text = format_bytes(bytes) + " free in /dev/shm";
  constexpr double kEnough = double(int64_t{1} << 30);  // bytes: of MPI's and NCCL's segments of some ranks
  if (bytes >= kEnough || !use.ranks_are_processes) return is_good("shared memory", text);
  return {.verdict = HealthVerdict::warning,
          .what = "shared memory",
          .found = text,
          .change = "of a container: docker run --shm-size=8g, or --ipc=host",
          .cost = "many ranks on this host may not start, or end with a bus error"};
}

HealthFinding check_open_files(const HostUse& use) {
  const rlimit limit = limit_of(RLIMIT_NOFILE);
  const rlim_t enough = use.ranks_are_processes ? 4096 : 1024;
  const std::string text = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{}", uint64_t(limit.rlim_cur));
  if (limit.rlim_cur >= enough) return is_good("open files (ulimit -n)", text);
  return {.verdict = HealthVerdict::warning,
          .what = "open files (ulimit -n)",
          .found = text,
          .change = fmt::format("ulimit -n {}", uint64_t(enough)),
          .cost = "datasets of many files, or many ranks, cannot be opened"};
}

HealthFinding check_file_size(const HostUse& use) {
  const auto most = largest_file_bytes();
  if (!most) return is_good("file size (ulimit -f)", "unlimited");
  const bool fails = use.largest_file_bytes > *most;
  if (!fails && use.largest_file_bytes > 0) return is_good("file size (ulimit -f)", format_bytes(double(*most)));
  return {.verdict = fails ? HealthVerdict::bad : HealthVerdict::advice,
          .what = "file size (ulimit -f)",
          .found = fails ? fmt::format("{}, and a checkpoint has a file of {}", format_bytes(double(*most)),
                                       format_bytes(double(use.largest_file_bytes)))
                         : format_bytes(double(*most)),
          .change = "ulimit -f unlimited",
          .cost = "checkpoints with larger files cannot be saved"};
}

HealthFinding check_locked_memory(const HostUse& use) {
  const rlimit limit = limit_of(RLIMIT_MEMLOCK);
  const std::string text = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_bytes(double(limit.rlim_cur));
  if (limit.rlim_cur == RLIM_INFINITY || !use.many_hosts) return is_good("locked memory (ulimit -l)", text);
  return {.verdict = HealthVerdict::advice,
          .what = "locked memory (ulimit -l)",
          .found = text,
          .change = "ulimit -l unlimited, on every host",
          .cost = "InfiniBand and RoCE need it; without it MPI uses TCP, or does not start"};
}

}  // namespace weft
