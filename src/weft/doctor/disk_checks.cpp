#include "weft/doctor/disk_checks.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "weft/base/descriptor.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/number_locks.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/records/clock.h"
#include "weft/records/progress.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// A folder that is gone at the end of the scope.
class ProbeFolder {
 public:
  explicit ProbeFolder(const fs::path& parent) {
    std::string name = (parent / ".weft-doctor-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw FileError(fmt::format("{}: cannot be written: {}", parent.string(), std::strerror(errno)));
    path_ = name;
  }
  ProbeFolder(const ProbeFolder&) = delete;
  ProbeFolder& operator=(const ProbeFolder&) = delete;
  ~ProbeFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const char* name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

fs::path nearest_there(const fs::path& folder) {
  std::error_code error;
  for (fs::path at = fs::absolute(folder, error); !error; at = at.parent_path()) {
    if (fs::is_directory(at, error)) return at;
    error.clear();
    if (!at.has_relative_path()) break;
  }
  throw FileError(fmt::format("{}: no folder of its path is there", folder.string()));
}

HealthFinding check_kind(const fs::path& folder) {
  struct statfs s = {};
  if (::statfs(folder.c_str(), &s) != 0)
    return {.verdict = HealthVerdict::unknown, .what = "file system", .found = std::strerror(errno)};
  if (s.f_type == TMPFS_MAGIC)
    return {.verdict = HealthVerdict::warning,
            .what = "file system",
            .found = "in memory (tmpfs)",
            .change = "a run.dir on a disk",
            .cost = "all checkpoints are gone when the machine ends, and take memory from the run"};
  if (s.f_type == NFS_SUPER_MAGIC)
    return {.verdict = HealthVerdict::good, .what = "file system", .found = "NFS: what other hosts need is there"};
  return {.verdict = HealthVerdict::good, .what = "file system", .found = "local, or one that does not say"};
}

HealthFinding tell_room(const fs::path& folder) {
  const auto free = free_bytes_at(folder);
  if (!free) return {.verdict = HealthVerdict::unknown, .what = "room", .found = "the file system does not say"};
  return {.verdict = HealthVerdict::good, .what = "room", .found = format_bytes(double(*free)) + " free"};
}

HealthFinding check_speed(const ProbeFolder& probe, const DiskUse& use) {
  const std::string block(size_t(1) << 20, '\x5a');
  const Descriptor file(::open((probe / "speed").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  bool is_good = file >= 0;
  const double began = now_s();
  int64_t done = 0;
  for (; is_good && done < use.probe_bytes; done += int64_t(block.size()))
    is_good = ::write(file, block.data(), block.size()) == ssize_t(block.size());
  is_good = is_good && ::fsync(file) == 0;
  const double took = std::max(now_s() - began, 1e-6);
  if (!is_good)
    return {.verdict = HealthVerdict::bad,
            .what = "writing",
            .found = fmt::format("fails after {}: {}", format_bytes(double(done)), std::strerror(errno)),
            .change = "another run.dir, or room on this disk",
            .cost = "no checkpoint can be saved"};
  const double speed = double(done) / took;
  std::string text = format_bytes(speed) + "/s, synced";
  if (use.checkpoint_bytes > 0)
    text += fmt::format("; a checkpoint takes {}", format_duration(double(use.checkpoint_bytes) / speed));
  constexpr double kSlow = 50e6;  // bytes/s: less than any disk of its own
  if (speed >= kSlow) return {.verdict = HealthVerdict::good, .what = "writing", .found = text};
  return {.verdict = HealthVerdict::advice,
          .what = "writing",
          .found = text,
          .change = "checkpoint.async_save = true, a longer checkpoint.save_interval, or a faster disk",
          .cost = "steps wait for each save as long as it takes"};
}

HealthFinding check_sync(const ProbeFolder& probe) {
  constexpr int kTimes = 5;
  double longest = 0;
  for (int i = 0; i < kTimes; ++i) {
    const double began = now_s();
    write_file_durably(probe / "small", "x");
    longest = std::max(longest, now_s() - began);
  }
  constexpr double kLong = 0.5;  // s
  return {.verdict = longest < kLong ? HealthVerdict::good : HealthVerdict::advice,
          .what = "small durable files",
          .found = fmt::format("{:.1f} ms at most of {}", 1000 * longest, kTimes),
          .change = longest < kLong ? "" : "a disk with less other work",
          .cost = longest < kLong ? "" : "each save waits for some of them"};
}

// As a checkpoint takes the place of one of the same step.
HealthFinding check_exchange(const ProbeFolder& probe) {
  const fs::path a = probe / "new", b = probe / "old";
  fs::create_directory(a);
  fs::create_directory(b);
  return judge_exchange(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0 ? 0 : errno);
}

HealthFinding check_locks(const ProbeFolder& probe) {
  const Descriptor a(::open((probe / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const Descriptor b(::open((probe / "lock").c_str(), O_RDWR | O_CLOEXEC));
  const bool excludes = a >= 0 && b >= 0 && ::flock(a, LOCK_EX | LOCK_NB) == 0 && ::flock(b, LOCK_EX | LOCK_NB) != 0 &&
                        errno == EWOULDBLOCK;
  const bool has_numbers = NumberLocks(probe / "numbers").work();
  if (excludes && has_numbers) return {.verdict = HealthVerdict::good, .what = "locks", .found = "they exclude others"};
  return {.verdict = HealthVerdict::warning,
          .what = "locks",
          .found = excludes ? "of whole files, not of parts" : "they do not exclude others",
          .change = "a run.dir on another file system; of NFS: mount without nolock",
          .cost = excludes ? "processes that work on one dataset do the same work twice"
                           : "two runs in one folder would not notice each other"};
}

HealthFinding check_links(const ProbeFolder& probe) {
  std::error_code cannot;
  write_file_durably(probe / "first", "x");
  fs::create_hard_link(probe / "first", probe / "second", cannot);
  if (!cannot) return {.verdict = HealthVerdict::good, .what = "hard links", .found = "there are"};
  return {.verdict = HealthVerdict::advice,
          .what = "hard links",
          .found = cannot.message(),
          .change = "nothing, if --from is not used",
          .cost = "weft train --from copies the checkpoint in place of naming it twice"};
}

}  // namespace

HealthFindings check_disk(const fs::path& folder, const DiskUse& use) {
  const fs::path there = nearest_there(folder);
  HealthFindings all{check_kind(there)};
  if (use.checkpoint_bytes == 0) all.push_back(tell_room(there));
  try {
    const ProbeFolder probe(there);
    all.push_back(check_speed(probe, use));
    all.push_back(check_sync(probe));
    all.push_back(check_exchange(probe));
    all.push_back(check_locks(probe));
    all.push_back(check_links(probe));
  } catch (const std::exception& e) {
    all.push_back({.verdict = HealthVerdict::bad,
                   .what = "writing",
                   .found = e.what(),
                   .change = "another run.dir, or the right to write there",
                   .cost = "the run cannot begin"});
  }
  return all;
}

HealthFinding judge_exchange(int error) {
  HealthFinding f{
      .verdict = HealthVerdict::good, .what = "atomic names", .found = "folders exchange their names at once"};
  if (error == 0) return f;
  f.change = "a run.dir on another file system";
  if (error == EINVAL || error == ENOSYS) {  // DurableFolder knows what to do
    f.verdict = HealthVerdict::advice;
    f.found = "folders take each other's place in two steps";
    f.cost = "after a power cut between the two, a checkpoint that was saved again is step-N.old until the run goes on";
  } else {
    f.verdict = HealthVerdict::bad;
    f.found = std::strerror(error);
    f.cost = "no checkpoint can take the place of another one";
  }
  return f;
}

}  // namespace weft
