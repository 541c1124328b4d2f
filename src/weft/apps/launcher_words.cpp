#include "weft/apps/launcher_words.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

constexpr size_t kDashes = 74;          // of Open MPI 4 and 5
constexpr size_t kLongBlock = 8 << 10;  // more is no word of mpirun's
constexpr char kRecordEnd = '\x1e', kFieldEnd = '\x1f';
constexpr std::string_view kStarted = "weft ranks have started", kError = "weft error";
constexpr size_t kLongRecord = 64 << 10;  // more is no record

bool is_dashes(std::string_view line) {
  return line.size() == kDashes && std::all_of(line.begin(), line.end(), [](char c) { return c == '-'; });
}

bool may_become_dashes(std::string_view line) {
  return line.size() <= kDashes && std::all_of(line.begin(), line.end(), [](char c) { return c == '-'; });
}

// Lines of mpirun's that stand by themselves, of which the first begins so; the others begin with "[host:process]".
constexpr std::string_view kForwards = "mpirun: Forwarding signal ";

bool may_be_of_mpirun(std::string_view line) {
  return may_become_dashes(line) || line.starts_with('[') || line.starts_with(kForwards) || kForwards.starts_with(line);
}

bool says_nothing(std::string_view line) {
  const auto has = [&](std::string_view part) { return line.find(part) != std::string_view::npos; };
  return line.starts_with(kForwards) ||
         (line.starts_with('[') &&
          (has("sent help message help-mpi-api.txt / mpi-abort") || has("orte_base_help_aggregate")));
}

std::string without_marks(std::string text) {
  for (char& c : text)
    if (c == kRecordEnd || c == kFieldEnd) c = '?';
  return text;
}

std::string record(const std::string& content) {
  const std::string whole = content.substr(0, kLongRecord);
  return kRecordEnd + whole + kRecordEnd;
}

constexpr const char* kNoticed = "mpirun noticed that process rank %d with PID %*d on node %255s exited on signal";

// The line behind the first line of dashes.
const char* first_line(const std::string& block) { return block.c_str() + block.find('\n') + 1; }

bool tells_of_an_end(const std::string& block) {
  static constexpr std::string_view kBegins[] = {"MPI_ABORT was invoked on rank ", "Primary job ",
                                                 "mpirun noticed that process rank ",
                                                 "mpirun detected that one or more processes exited"};
  const std::string_view words = first_line(block);
  return std::any_of(std::begin(kBegins), std::end(kBegins),
                     [&](std::string_view begin) { return words.substr(0, begin.size()) == begin; });
}

}  // namespace

std::string record_of_start() { return record(std::string(kStarted)); }

std::string record_of_error(const std::string& command, const std::string& message) {
  return record(std::string(kError) + kFieldEnd + without_marks(command) + kFieldEnd + without_marks(message));
}

std::string LauncherWords::pass(std::string_view bytes) {
  take_records(bytes);
  std::string shown = take_lines();
  const bool is_text = block_.empty() ? !may_be_of_mpirun(held_) : block_.size() + held_.size() > kLongBlock;
  return is_text ? shown + rest() : shown;
}

std::string LauncherWords::rest() {
  std::string shown = block_ + held_ + record_;
  record_.clear();
  block_.clear();
  held_.clear();
  return shown;
}

// What is no record goes to held_.
void LauncherWords::take_records(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == kRecordEnd && !record_.empty()) {
      close_record();
      continue;
    }
    std::string& to = c == kRecordEnd || !record_.empty() ? record_ : held_;
    to.push_back(c);
    if (record_.size() > 2 * kLongRecord) held_ += std::exchange(record_, {});
  }
}

void LauncherWords::close_record() {
  const std::string content = std::exchange(record_, {}).substr(1);
  if (content == kStarted) started_ = true;
  const size_t command = content.find(kFieldEnd), message = content.find(kFieldEnd, command + 1);
  if (!content.starts_with(kError) || message == std::string::npos || error_) return;
  error_ = {content.substr(command + 1, message - command - 1), content.substr(message + 1)};
}

std::string LauncherWords::take_lines() {
  std::string shown;
  size_t begin = 0;
  for (size_t end; (end = held_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(held_).substr(begin, end - begin);
    const bool dashes = is_dashes(line), inside = !block_.empty();
    if (!inside && says_nothing(line)) continue;
    std::string& to = dashes || inside ? block_ : shown;
    to.append(line).push_back('\n');
    if (inside && dashes) close_block(shown);
  }
  held_.erase(0, begin);
  return shown;
}

void LauncherWords::close_block(std::string& shown) {
  int rank = 0;
  char host[256];
  if (!tells_of_an_end(block_))
    shown += block_;
  else if (ended_rank_.empty() && std::sscanf(first_line(block_), kNoticed, &rank, host) == 2)
    ended_rank_ = "rank " + std::to_string(rank) + " on host " + host;
  block_.clear();
}

}  // namespace weft
