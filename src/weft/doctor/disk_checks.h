// Whether the disk of a run folder does what checkpoints rely on, and how fast.
#pragma once
#include <filesystem>

#include "weft/doctor/finding.h"

namespace weft {

struct DiskUse {
  int64_t checkpoint_bytes = 0;    // of one, whose room somebody else judges; 0: not known
  int64_t probe_bytes = 64 << 20;  // to write for the measurement
};

// Tries it in a folder of its own in `folder`, or in its nearest parent that is there, and removes that again. Takes as
// long as the disk for DiskUse::probe_bytes. What cannot be tried is a finding, not an error; only a `folder` without
// any parent throws FileError.
HealthFindings check_disk(const std::filesystem::path& folder, const DiskUse& use);

// What it means that two folders could exchange their names, or that the system gave this errno; 0: they could.
HealthFinding judge_exchange(int error);

}  // namespace weft
