#include "weft/apps/run_queue.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <thread>

#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/threads.h"
#include "weft/records/clock.h"

namespace weft {

void take_turns(std::vector<QueuedRun>& runs) {
  std::sort(runs.begin(), runs.end(), [](const QueuedRun& a, const QueuedRun& b) {
    if (a.priority != b.priority) return a.priority > b.priority;
    if (a.goes != b.goes) return a.goes;
    return a.number != b.number ? a.number < b.number : a.run < b.run;
  });
  int64_t left = 0;
  for (const QueuedRun& r : runs) left = std::max(left, r.of_cores);
  bool any_waits = false;
  for (QueuedRun& r : runs) {
    r.has_turn = r.cores <= left && (r.goes || !any_waits);
    if (r.has_turn)
      left -= r.cores;
    else
      any_waits = true;
  }
}

void check_queue_keys(const Recipe& recipe, bool is_supervised) {
  if (recipe.run.queue.empty() && recipe.run.priority != 0)
    throw ConfigError(
        fmt::format("run.priority = {} says which run goes first in the queue of run.queue, which is empty; the "
                    "nearest that works: run.queue=FOLDER, the same one for all runs of this machine",
                    recipe.run.priority));
  if (recipe.run.queue.empty() || is_supervised) return;
  throw ConfigError(
      fmt::format("run.queue = {}: a run waits and gives way only under `weft supervise`; the nearest that works: "
                  "run.supervise=true",
                  in_quotes(recipe.run.queue)));
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntryHead = "run-", kEntryTail = ".entry";
constexpr const char* kLockFile = "queue.lock";
constexpr int kEntryFormat = 1;

// What the operating system refuses in the folder: another one may be better.
class FolderError : public FileError {
 public:
  using FileError::FileError;
};

[[noreturn]] void fail_queue(const fs::path& path, const char* what, int reason) {
  throw FolderError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(reason)));
}

// The same for all containers of a machine, another after each start of it.
std::string machine_name() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string name;
  return std::getline(in, name) ? name : name_of_host();
}

bool is_at(const fs::path& path, int fd) {
  struct stat named = {}, open = {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd, &open) == 0 && named.st_ino == open.st_ino &&
         named.st_dev == open.st_dev;
}

// Held for the microseconds of a look or a change. Throws FileError where another holds it for seconds, as one that was
// stopped by a signal, or there are no locks.
class QueueLock {
 public:
  explicit QueueLock(const fs::path& folder) {
    constexpr int kLooks = 400;
    const fs::path file = folder / kLockFile;
    for (int look = 0; look < kLooks; ++look) {
      if (fd_ < 0) fd_ = Descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
      if (fd_ < 0) fail_queue(file, "cannot be opened", errno);
      const bool locked = ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
      if (!locked && errno != EWOULDBLOCK) fail_queue(folder, "its file system has no locks", errno);
      if (locked && is_at(file, fd_)) return;
      if (locked)
        fd_ = Descriptor();  // somebody has removed it meanwhile
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    throw FileError(
        fmt::format("{}: another process holds it for seconds: was it stopped by a signal?", file.string()));
  }

 private:
  Descriptor fd_;
};

std::string text_of(const QueuedRun& r) {
  const nlohmann::json entry{
      {"format", kEntryFormat}, {"run", r.run},           {"priority", r.priority},   {"cores", r.cores},
      {"of_cores", r.of_cores}, {"number", r.number},     {"goes", r.goes},           {"since", r.since_s},
      {"process", r.process},   {"host", name_of_host()}, {"machine", machine_name()}};
  return entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string content_of(int fd) {
  constexpr size_t kMost = 1 << 16;
  std::string text(kMost, '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? size_t(n) : 0);
  return text;
}

struct Entry {
  QueuedRun run;
  bool is_here = false;   // of this machine as it runs now
  bool was_here = false;  // or of this host before it was started anew
};

Entry parse_entry(const std::string& text, const fs::path& file) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const JsonFields f(json, file.string());
  if (f.integer("format", {}) != kEntryFormat) f.fail("format", fmt::format("{}: another weft wrote it", kEntryFormat));
  constexpr JsonFields::IntRange kAny{.min = INT64_MIN};
  Entry e;
  e.run = {.run = f.string("run"),
           .priority = f.integer("priority", kAny),
           .cores = f.integer("cores", {}),
           .of_cores = f.integer("of_cores", {}),
           .number = f.integer("number", {}),
           .goes = f.flag("goes"),
           .since_s = f.number("since", {}),
           .process = f.integer("process", {})};
  e.is_here = f.string("machine") == machine_name();
  e.was_here = !e.is_here && f.string("host") == name_of_host();
  return e;
}

struct Entries {
  std::vector<QueuedRun> alive;
  std::vector<std::pair<fs::path, QueuedRun>> orphans;
};

// Of this machine; other machines may share the folder. Under the lock.
Entries read_entries(const fs::path& folder, const fs::path& own) {
  Entries found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path file = at->path();
    const std::string name = file.filename().string();
    if (!name.starts_with(kEntryHead) || !name.ends_with(kEntryTail) || file == own) continue;
    const Descriptor fd(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) fail_queue(file, "cannot be read", errno);
    const bool is_alive = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    try {
      const Entry e = parse_entry(content_of(fd), file);
      if (is_alive && e.is_here) found.alive.push_back(e.run);
      if (!is_alive && (e.is_here || e.was_here)) found.orphans.emplace_back(file, e.run);
    } catch (const FileError& e) {
      if (is_alive)
        throw FileError(fmt::format("{}; a process holds it: let that run end, or name another folder", e.what()));
      found.orphans.emplace_back(file, QueuedRun{.run = file.string()});  // killed before it was written
    }
  }
  if (error) fail_queue(folder, "cannot be read", error.value());
  return found;
}

void require_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw ConfigError(fmt::format("{}: is no folder", folder.string()));
}

// Without a slash behind it, however it was given.
std::string path_of_run(const std::string& run) {
  const fs::path path = fs::absolute(run).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).string();
}

}  // namespace

QueuePlace::QueuePlace(fs::path folder, const std::string& run, int64_t priority)
    : folder_(std::move(folder)),
      self_{.run = path_of_run(run), .priority = priority, .of_cores = usable_cores(), .process = ::getpid()} {
  try {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) fail_queue(folder_, "cannot be made a folder", error.value());
    const QueueLock lock(folder_);
    look();
  } catch (const FolderError& e) {
    throw ConfigError(fmt::format("run.queue = {}: {}; name a folder of this machine that you may write to",
                                  in_quotes(folder_.string()), e.what()));
  } catch (const FileError& e) {  // of another run there, which it names
    throw ConfigError(fmt::format("run.queue = {}: {}", in_quotes(folder_.string()), e.what()));
  }
}

QueuePlace::~QueuePlace() { give_back(); }

bool QueuePlace::try_take(int64_t cores) {
  const QueueLock lock(folder_);
  cores = std::clamp<int64_t>(cores, 1, self_.of_cores);
  if (self_.cores != cores) self_.goes = false;
  self_.cores = cores;
  look();
  int64_t all = self_.of_cores, taken = 0, last = 0;
  for (const QueuedRun& r : runs_) {
    if (r.run == self_.run)
      throw ConfigError(
          fmt::format("run.dir = {} is in the queue already, by process {}: wait for it, or choose another",
                      in_quotes(r.run), r.process));
    all = std::max(all, r.of_cores);
    last = std::max(last, r.number);
    if (r.goes) taken += r.cores;
  }
  if (self_.number == 0) self_.number = last + 1;
  find_turn();
  write(self_.has_turn && taken + cores <= all);
  return self_.goes;
}

// It loses its name before its lock: nobody takes it for an orphan.
void QueuePlace::give_back() {
  if (has_entry()) ::unlink(entry_.c_str());
  fd_ = Descriptor();
  self_.goes = false;
}

std::optional<QueuedRun> QueuePlace::who_needs_it() {
  if (!self_.goes) return {};
  const QueueLock lock(folder_);
  look();
  if (!has_entry()) write(true);  // somebody has cleared the folder
  find_turn();
  if (self_.has_turn) return {};
  const auto at = std::find_if(runs_.begin(), runs_.end(),
                               [&](const QueuedRun& r) { return r.has_turn && r.priority > self_.priority; });
  return at == runs_.end() ? std::nullopt : std::optional(*at);
}

bool QueuePlace::has_entry() const { return fd_ >= 0 && is_at(entry_, fd_); }

// The others. Under the lock, as all below.
void QueuePlace::look() {
  Entries found = read_entries(folder_, entry_);
  for (auto& [file, run] : found.orphans)
    if (::unlink(file.c_str()) == 0) reclaimed_.push_back(std::move(run));
  runs_ = std::move(found.alive);
}

// Of this one among them.
void QueuePlace::find_turn() {
  runs_.push_back(self_);
  take_turns(runs_);
  for (const QueuedRun& r : runs_)
    if (r.run == self_.run) self_.has_turn = r.has_turn;
}

// Where it cannot be written there is no entry, and this run's own state is as before.
void QueuePlace::write(bool goes) {
  if (!has_entry()) make_entry();
  QueuedRun now = self_;
  now.goes = goes;
  if (goes != self_.goes || self_.since_s == 0) now.since_s = wall_time_s();
  const std::string text = text_of(now);
  const bool written =
      ::pwrite(fd_, text.data(), text.size(), 0) == ssize_t(text.size()) && ::ftruncate(fd_, off_t(text.size())) == 0;
  if (!written) {
    const int reason = errno;
    ::unlink(entry_.c_str());
    fd_ = Descriptor();
    fail_queue(entry_, "cannot be written", reason);
  }
  self_ = now;
}

void QueuePlace::make_entry() {
  std::random_device random;  // of the operating system
  fd_ = Descriptor();
  for (int i = 0; i < 100 && fd_ < 0; ++i) {
    entry_ = folder_ / fmt::format("{}{:08x}{}", kEntryHead, random(), kEntryTail);
    fd_ = Descriptor(::open(entry_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd_ < 0 && errno != EEXIST) fail_queue(entry_, "cannot be made", errno);
  }
  if (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) != 0) fail_queue(entry_, "cannot be locked", errno);
}

std::vector<QueuedRun> runs_in_queue(const fs::path& folder) {
  require_folder(folder);
  if (!is_there(folder / kLockFile)) return {};  // no run has been in it
  const QueueLock lock(folder);
  std::vector<QueuedRun> runs = read_entries(folder, "").alive;
  take_turns(runs);
  return runs;
}

}  // namespace weft
