// RUN/attempts.jsonl: one line when a process begins to train a run, and one when it ends (docs/runs.md). It says what
// the rest of the run folder does not: when, by which program, on which machine, and how it ended.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace weft {

struct RunAttempt {
  double began_s = 0;         // seconds since 1970
  std::string weft = {};      // kVersion
  std::string program = {};   // id_of_this_program (program_id.h)
  std::string host = {};      // its name
  std::string machine = {};   // Machine::description
  std::string folder = {};    // from which the recipe's relative paths are seen
  std::string from = {};      // the checkpoint that `weft train --from` named; empty: none
  int64_t ranks = 0;          // 0: not known
  std::string launcher = {};  // "threads" or "processes"
  // How it ended; none while it runs, and of one that ended without a word (killed, or a power cut).
  struct End {
    double time_s = 0;        // seconds since 1970
    int status = 0;           // the exit status of `weft train`
    std::string reason = {};  // the error; empty: none
    bool operator==(const End&) const = default;
  };
  std::optional<End> end = {};
  bool operator==(const RunAttempt&) const = default;
};

// Append one line, which is in the hands of the operating system then. Throw FileError.
void append_attempt(const std::filesystem::path& run, const RunAttempt& begun);
void append_attempt_end(const std::filesystem::path& run, const RunAttempt::End& end);

// The attempts of a run, oldest first; none where there is no such file. Lines that say nothing are passed over, and
// `problems` gets one sentence that names the first of them and says how many there are. Throws FileError where the
// file cannot be read.
std::vector<RunAttempt> read_attempts(const std::filesystem::path& run, std::vector<std::string>& problems);

}  // namespace weft
