// Tells mpirun's own messages from the lines of the ranks.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Records that a rank sends to the launcher through its standard error, the only channel from every host. A record
// stands between two bytes 0x1e and is never shown.
std::string record_of_start();  // all ranks have found each other
std::string record_of_error(const std::string& command, const std::string& message);
// An error that a rank has told: "train, rank 1", and why.
struct ToldError {
  std::string command, message;
};

// Reads mpirun's standard error as it comes. mpirun's messages stand between lines of dashes: those on how a rank
// ended, and on signals that it forwards, are held back, because weft says it better. All else passes.
class LauncherWords {
 public:
  // Returns what to show of these bytes and of those held back before. A line is held back only while it may be
  // mpirun's.
  std::string pass(std::string_view bytes);
  // What is still held back, at the end.
  std::string rest();
  // "rank 1 on host a" where a rank was ended by a signal; else empty.
  const std::string& ended_rank() const { return ended_rank_; }
  bool started() const { return started_; }  // by the ranks' record
  // The first error that a rank has told: those after it follow from it.
  const std::optional<ToldError>& error() const { return error_; }

 private:
  void take_records(std::string_view bytes);
  void close_record();
  std::string take_lines();
  void close_block(std::string& shown);

  std::string held_;
  std::string block_;  // from its first line of dashes
  std::string ended_rank_;
  std::string record_;  // from its first byte 0x1e
  bool started_ = false;
  std::optional<ToldError> error_;
};

}  // namespace weft
