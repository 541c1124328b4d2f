// Whether the ranks of a layout fit where they are, and a run's checkpoints on its disk, before anything begins.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "weft/base/memory_limits.h"
#include "weft/plan/layout_plan.h"
#include "weft/plan/run_plan.h"
#include "weft/recipe/recipe.h"
#include "weft/train/machine.h"

namespace weft {

// The bytes of one rank's plan; not with_host: without memory that the host reaches.
int64_t planned_bytes(const LayoutPlan& plan, int rank, bool with_host = true);

// For ranks that are threads of this process. Throws ConfigError, with the device's name and ranks, if the plans of the
// ranks that share a device need more memory than is free there.
void require_room(const Machine& machine, const LayoutPlan& plan);

// Compares the size of the checkpoints with the free space at run.dir, and with the limit on file sizes. Returns a
// warning, in bytes, where later saves would fail; empty: all fit, or the file system does not say. Throws FileError
// where the run has no checkpoint yet, and not even its first fits.
std::string judge_checkpoint_room(const Recipe& recipe, const RunPlan& plan);

// Whether the ranks of a layout that are on this host fit into its memory, before anything begins.

struct HostMemory {
  std::optional<MemoryLimit> all;   // for all ranks here together
  std::optional<MemoryLimit> each;  // for each process
};
HostMemory memory_of_this_host();

// Ranks of the layout on this host: threads of one process, or a process each.
struct RanksOnHost {
  std::vector<int> ranks;
  bool are_processes = false;
};
RanksOnHost all_on_this_host(const LayoutPlan& plan, bool are_processes);

// The memory of these ranks: their plans, and an estimate of the rest (the program, its libraries' own memory, threads,
// buffers of MPI; mapped files do not count, as the kernel can drop them).
struct HostNeed {
  int64_t planned = 0, beside = 0;  // bytes of all
  int64_t largest = 0;              // of one process
  int64_t total() const { return planned + beside; }
};
HostNeed need_on_host(const LayoutPlan& plan, const RanksOnHost& here);

// Throws ConfigError if they do not fit, with the numbers and the nearest settings that do, found by planning with more
// recomputation, smaller micro-batches and higher ZeRO stages: fewest and smallest changes first, then least time. Once
// the run folder exists, only settings that may still change are tried. `all_the_same`: the end of the message, what a
// user may do who insists.
void require_host_room(const Recipe& recipe, const LayoutPlan& plan, const WorkspaceModel& workspace,
                       const RanksOnHost& here, const HostMemory& memory, std::string_view all_the_same = "");
// The same for a layout whose ranks are threads of this process, unless they are of GPUs.
void require_host_room(const Recipe& recipe, const LayoutPlan& plan, const Machine& machine);

}  // namespace weft
