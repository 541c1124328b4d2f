// Whether this host is set up for a long run: its clocks, memory, limits. Each check reads a few files and changes
// nothing.
#pragma once
#include <filesystem>
#include <string>

#include "weft/doctor/finding.h"

namespace weft {

// What a run asks of its host.
struct HostUse {
  bool ranks_are_processes = false;
  bool many_hosts = false;
  int64_t largest_file_bytes = 0;  // that it writes; 0: not known
};

// All checks. `root` is where /proc, /sys and /dev are: for tests. What the kernel does not tell is `unknown`.
HealthFindings check_host(const HostUse& use, const std::filesystem::path& root = "/");

// One by one, as check_host calls them.
HealthFinding check_governor(const std::filesystem::path& root);
HealthFinding check_clock_cap(const std::filesystem::path& root);
HealthFinding check_throttling(const std::filesystem::path& root);
HealthFinding check_huge_pages(const std::filesystem::path& root);
HealthFinding check_numa(const std::filesystem::path& root);
HealthFinding check_swap(const std::filesystem::path& root);
HealthFinding check_other_work(const std::filesystem::path& root, int cores);
HealthFinding check_clock_source(const std::filesystem::path& root);
HealthFinding check_shared_memory(const HostUse& use, const std::filesystem::path& root);
// The limits of this process (ulimit).
HealthFinding check_open_files(const HostUse& use);
HealthFinding check_file_size(const HostUse& use);
HealthFinding check_locked_memory(const HostUse& use);

}  // namespace weft
