// How much memory processes may take here: the limits of the machine, of their control groups, and their own.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace weft {

struct MemoryLimit {
  int64_t bytes = 0;  // that are left
  std::string what;   // where they come from: "3.20 GiB of the 23.54 GiB of this machine are available"
};

// What the processes of this process's control group may still take on this host, all together: the least of the
// machine's available memory (MemAvailable, with what the kernel can drop from its caches, without swap) and of what
// each memory control group leaves, from this process's own up to the root (v1 and v2; limit less use, caches not
// counted as use). `root` is where /proc and /sys are: for tests. None where the kernel tells nothing.
std::optional<MemoryLimit> memory_left_here(const std::filesystem::path& root = "/");

// What one process may still map by its own limits (RLIMIT_AS, RLIMIT_DATA; `ulimit -v`, `-d`), which child processes
// inherit. None if it has no limit.
std::optional<MemoryLimit> memory_left_to_a_process(const std::filesystem::path& root = "/");

// How many processes the kernel has killed so far for lack of memory: in this process's control groups if they count
// them, else on the machine. None if neither is known.
std::optional<int64_t> kills_for_memory(const std::filesystem::path& root = "/");

std::string gib_text(int64_t bytes);  // "3.20 GiB"; below a GiB "150 MiB"

}  // namespace weft
