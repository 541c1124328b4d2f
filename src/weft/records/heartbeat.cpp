#include "weft/records/heartbeat.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "weft/base/error.h"
#include "weft/records/clock.h"

namespace weft {

std::string_view name_of(RunSection section) {
  constexpr std::string_view kNames[] = {"setup",    "step", "evaluation", "tasks",
                                         "snapshot", "save", "islands",    "finished"};
  return kNames[size_t(section)];
}

namespace {

constexpr size_t kLine = 64;  // of one size: a write replaces the one before whole

}  // namespace

Heartbeat::Heartbeat(const std::filesystem::path& file)
    : file_(::open(file.c_str(), O_WRONLY | O_CLOEXEC)), since_s_(now_s()) {
  if (file_ < 0)
    throw FileError(
        fmt::format("{}: {}; it is where this run, which is supervised, says that it is alive: its first "
                    "rank must be on the supervisor's host",
                    file.string(), std::strerror(errno)));
}

void Heartbeat::beat(RunSection section, int64_t step) {
  const double now = now_s();
  double& longest = longest_s_[size_t(last_.section)];
  if (last_.number > 0) longest = std::max(longest, now - since_s_);
  if (section == RunSection::setup) longest_s_ = {};  // what follows may take longer
  since_s_ = now;
  last_ = {.section = section, .step = step, .number = last_.number + 1, .longest_s = longest_s_[size_t(section)]};
  char line[kLine] = {};
  std::snprintf(line, sizeof line, "%d %" PRId64 " %" PRId64 " %.9g\n", int(section), step, last_.number,
                last_.longest_s);
  [[maybe_unused]] const auto written = ::pwrite(file_, line, sizeof line, 0);
}

Beat read_beat(int file) {
  char line[kLine + 1] = {};
  Beat beat;
  int section = 0;
  if (::pread(file, line, kLine, 0) <= 0 ||
      std::sscanf(line, "%d %" SCNd64 " %" SCNd64 " %lf", &section, &beat.step, &beat.number, &beat.longest_s) != 4 ||
      section < 0 || section >= int(kRunSections))
    return {};
  beat.section = RunSection(section);
  return beat;
}

}  // namespace weft
