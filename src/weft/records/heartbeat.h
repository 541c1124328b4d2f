// Where a run is, told to the process that watches over it (apps/supervise.cpp).
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "weft/base/descriptor.h"

namespace weft {

// What a run is doing. setup: all that comes before the first step, or the first one of a phase; snapshot: it copies
// what is then written beside it; save: it waits for the disk; islands: for other islands; finished: all steps are
// done, and the last is saved.
enum class RunSection : uint8_t { setup, step, evaluation, tasks, snapshot, save, islands, finished };
inline constexpr size_t kRunSections = 8;
std::string_view name_of(RunSection section);

// What a run says each time when it goes from one section to the next. Steps count those that are done.
struct Beat {
  RunSection section = RunSection::setup;
  int64_t step = 0;
  int64_t number = 0;    // of the beat; 0: none came
  double longest_s = 0;  // that a section of this kind has lasted, of those that ended since the setup; 0: none has
  bool operator==(const Beat&) const = default;
};

// Writes beats, some microseconds each. Not thread-safe; of the rank that leads.
class Heartbeat {
 public:
  // Throws FileError where the file, which the watcher holds open, cannot be opened.
  explicit Heartbeat(const std::filesystem::path& file);
  void beat(RunSection section, int64_t step);

 private:
  Descriptor file_;
  Beat last_;
  double since_s_;  // of its section
  std::array<double, kRunSections> longest_s_{};
};

// The last beat; of an empty file, or one that no run wrote, that there was none.
Beat read_beat(int file);

}  // namespace weft
