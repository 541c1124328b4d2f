#include "weft/doctor/disk_checks.h"

#include <fcntl.h>
#include <linux/magic.h>
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

constexpr const char* kNoAtomicity = "after a power cut a checkpoint may be half there under its name";

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

HealthFinding check_disk_room(const fs::path& folder, const DiskUse& use) {
  const auto free = free_bytes_at(folder);
  if (!free) return {.verdict = HealthVerdict::unknown, .what = "room", .found = "the file system does not say"};
  const std::string text = format_bytes(double(*free)) + " free";
  if (use.checkpoint_bytes <= 0) return {.verdict = HealthVerdict::good, .what = "room", .found = text};
  const int64_t at_once = std::max<int64_t>(use.checkpoints, 1) + 1;  // a new one is written beside the older ones
  const std::string needs = fmt::format("{}; {} checkpoints of {} are there at once", text, at_once,
                                        format_bytes(double(use.checkpoint_bytes)));
  if (double(*free) >= double(at_once) * double(use.checkpoint_bytes))
    return {.verdict = HealthVerdict::good, .what = "room", .found = needs};
  return {.verdict = *free < use.checkpoint_bytes ? HealthVerdict::bad : HealthVerdict::warning,
          .what = "room",
          .found = needs,
          .change = "weft runs gc; another run.dir; a smaller checkpoint.keep_latest",
          .cost = *free < use.checkpoint_bytes ? "not even one checkpoint can be saved" : "later saves fail"};
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

// A folder takes another one's name at once, as a checkpoint does when it is whole.
HealthFinding check_rename(const ProbeFolder& probe) {
  HealthFinding f{
      .verdict = HealthVerdict::good, .what = "atomic names", .found = "files and folders are exchanged whole"};
  try {
    for (int i = 0; i < 2; ++i) {  // the second takes the name of the first
      DurableFolder folder(probe / "folder");
      write_file_durably(folder.building() / "file", std::to_string(i));
      folder.commit();
    }
    write_file_durably(probe / "name", "old");
    write_file_durably(probe / "name", "new");
  } catch (const Error& e) {
    f = {.verdict = HealthVerdict::bad,
         .what = "atomic names",
         .found = e.what(),
         .change = "a run.dir on another file system",
         .cost = kNoAtomicity};
  }
  return f;
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
  HealthFindings all{check_kind(there), check_disk_room(there, use)};
  try {
    const ProbeFolder probe(there);
    all.push_back(check_speed(probe, use));
    all.push_back(check_sync(probe));
    all.push_back(check_rename(probe));
    all.push_back(check_locks(probe));
    all.push_back(check_links(probe));
  } catch (const Error& e) {
    all.push_back({.verdict = HealthVerdict::bad,
                   .what = "writing",
                   .found = e.what(),
                   .change = "another run.dir, or the right to write there",
                   .cost = "the run cannot begin"});
  }
  return all;
}

}  // namespace weft
