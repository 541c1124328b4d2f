// Runs are found by looking for their folders; the index saves reading again those that have not changed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/history/run_facts.h"
#include "weft/history/run_index.h"

namespace weft {

// The run folders in and below `root` (which may be one itself), as absolute paths in the order of their names. It does
// not look into run folders, folders whose name begins with a dot, or beyond kDeepestRun levels; of links to folders it
// follows those to a run. What cannot be read is said in `notes`. Throws FileError where `root` is no folder.
inline constexpr int kDeepestRun = 16;
std::vector<std::string> find_run_folders(const std::filesystem::path& root, std::vector<std::string>& notes);

struct ScannedRuns {
  std::vector<RunFacts> runs = {};      // in the order of their paths
  std::vector<std::string> notes = {};  // what could not be looked at
  int64_t num_read = 0;                 // of these runs, so many were read anew
  std::vector<std::string> roots = {};  // that were looked through, in the order of their names
};

enum class ScanWay : uint8_t { what_changed, everything };

// Looks through all roots of the index and `more`, and brings it up to date: reads new and changed run folders, and
// forgets those that are gone. The runs of a root that is not there now (a share that is not mounted) stay, as `away`.
// A folder that cannot be read as a run's is a note. Throws FileError where the index cannot be read; where it cannot
// be written, that is a note.
ScannedRuns scan_runs(RunIndex& index, ScanWay way = ScanWay::what_changed, const std::vector<std::string>& more = {});
// The same of these roots alone, without an index: everything is read.
ScannedRuns scan_folders(const std::vector<std::string>& roots);

// `folder` as a root: absolute, links resolved. Throws FileError where it is no folder.
std::string root_of(const std::filesystem::path& folder);

// How a run may be named. exactly: by the path of its folder, or its id. by_end: also by the last parts of its path
// ("first", "runs/first"), where nothing here has that name.
enum class RunNaming : uint8_t { exactly, by_end };

// The one run that `name` means; an id may be cut to its first four digits. Where a folder or file has that name, as
// seen from here, it means that one and no other. Throws ConfigError where there is none, which names the nearest, or
// several, which it lists.
const RunFacts& find_run(const std::vector<RunFacts>& runs, const std::string& name,
                         RunNaming naming = RunNaming::by_end);

}  // namespace weft
