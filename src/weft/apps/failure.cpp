#include "weft/apps/failure.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <new>

#include "weft/apps/commands.h"
#include "weft/apps/launch.h"
#include "weft/apps/launcher_words.h"
#include "weft/apps/ranks.h"
#include "weft/apps/supervised_attempt.h"
#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/comm/rank_watch.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/trainer.h"

namespace weft {

namespace {

void write_record(int fd, const std::string& command, const std::string& message) {
  const std::string record = record_of_error(command, message);
  [[maybe_unused]] const auto written = ::write(fd, record.data(), record.size());
}

}  // namespace

int say_error(const std::string& command, const std::string& message, int status) {
  if (std::getenv(kHasLauncher) != nullptr) {
    write_record(STDERR_FILENO, command, message);
    return status;
  }
  if (const char* supervisor = std::getenv(kErrorsTo)) write_record(std::atoi(supervisor), command, message);
  const bool colour = isatty(STDERR_FILENO) == 1;
  std::cerr << "weft" << (command.empty() ? "" : " " + command) << (colour ? ": \033[1;31merror:\033[0m " : ": error: ")
            << message << std::endl;
  return status;
}

FailureTold failure_told() {
  try {
    throw;
  } catch (const WorldError& e) { return {e.what(), kExitWrongWorld}; } catch (const ConfigError& e) {
    return {e.what(), kExitUsage};
  } catch (const NotSavedError& e) { return {e.what(), kExitNotSaved}; } catch (const NoCheckpointError& e) {
    return {e.what(), kExitNoCheckpoint};
  } catch (const HangError& e) { return {e.what(), kExitHang}; } catch (const CorruptionError& e) {
    return {e.what(), kExitCorrupted};
  } catch (const SpikesError& e) { return {e.what(), kExitSpikes}; } catch (const NumericsError& e) {
    return {e.what(), kExitNotFinite};
  } catch (const Error& e) { return {e.what(), kExitFailure}; } catch (const CheckFailure& e) {
    return {fmt::format("{}\nThis is a bug in weft: please report it with the command.", e.what()), kExitFailure};
  } catch (const std::bad_alloc&) {
    return {"out of memory; `weft plan` shows what the recipe needs", kExitFailure};
  } catch (const std::exception& e) { return {e.what(), kExitFailure}; }
}

int say_failure(const std::string& command) {
  const FailureTold failure = failure_told();
  return say_error(command, failure.message, failure.status);
}

namespace {

// A signal handler reaches nothing else. Set before the handler is.
std::string name_of_command;
int rank_of_process = 0;
std::atomic<bool> is_told{false};

// A line of /proc/self/maps.
struct MappedRange {
  uintptr_t end = 0;  // 0: none
  std::string path;   // empty: memory without a file
};

MappedRange range_of(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &begin, &end, &path_at) != 2)
      continue;
    if (address >= begin && address < end) return {end, line.substr(size_t(path_at))};
  }
  return {};
}

// Copies this process's own memory; false where it cannot be read.
bool copy_memory(uintptr_t from, void* to, size_t bytes) {
  const int memory = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  const bool copied = memory >= 0 && ::pread(memory, to, bytes, off_t(from)) == ssize_t(bytes);
  if (memory >= 0) ::close(memory);
  return copied;
}

std::string why_lost(const MappedRange& range) {
  MappedFileNote note;
  const MappedRange behind = range_of(range.end);
  const bool may_be_note = behind.end >= range.end + sizeof note && behind.path.empty();
  if (may_be_note && copy_memory(range.end, &note, sizeof note) && note.mark == MappedFileNote::kMark) {
    if (std::string text = shortened_text(note); !text.empty()) return text;
    return fmt::format(
        "{}: cannot be read any more, of the {} bytes that it had when it was opened: its disk or network file system "
        "fails, or it was removed and shortened",
        note.path, note.bytes);
  }
  return fmt::format("{}: memory that stands for this file cannot be had: is its file system full?", range.path);
}

// The error is of the instruction that reads the file: never inside of the allocator or of a stream's lock, so that
// the whole library may be used here.
extern "C" void on_bus_error(int, siginfo_t* info, void*) {
  const bool is_sent = info->si_code <= 0;  // by a process, not by the memory
  const MappedRange range = is_sent ? MappedRange() : range_of(reinterpret_cast<uintptr_t>(info->si_addr));
  if (range.end == 0 || range.path.empty() || range.path[0] != '/') {  // no file's: as before, at the same instruction
    ::signal(SIGBUS, SIG_DFL);
    if (is_sent) ::raise(SIGBUS);
    return;
  }
  while (is_told.exchange(true)) ::pause();  // another thread is telling
  let_the_first_rank_speak(rank_of_process);
  const std::string who =
      rank_of_process > 0 ? fmt::format("{}, rank {}", name_of_command, rank_of_process) : name_of_command;
  ::_exit(say_error(who, why_lost(range), kExitFailure));
}

}  // namespace

void report_lost_files(const std::string& command, int rank) {
  name_of_command = command;
  rank_of_process = rank;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace weft
