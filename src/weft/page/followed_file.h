// A file that another process appends lines to, cuts, or replaces, read as it grows. Never waits: what is no regular
// file (a pipe, a link, a folder) is not opened.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "weft/base/descriptor.h"

namespace weft {

// Opens a regular file of a run's folder to read: no link, no pipe. -1 with the reason in `problem` where it cannot be,
// without a reason where nothing has that name.
Descriptor open_plain(const std::filesystem::path& file, std::string& problem);
// All of it, if it is no longer than that; empty, with the reason in `problem`, where it cannot be read.
std::string read_plain(const std::filesystem::path& file, int64_t most_bytes, std::string& problem);

class FollowedFile {
 public:
  struct Spec {
    std::filesystem::path file;
    size_t longest_line = 16 << 20;  // bytes; longer ones are passed over
  };
  explicit FollowedFile(Spec spec) : spec_(std::move(spec)) {}

  struct Hearer {
    // What was heard before counts no longer: the file is another one, was cut, or says something else now.
    std::function<void()> anew;
    // A whole line, without its newline, and where it begins, in bytes.
    std::function<void(std::string_view text, int64_t begin)> line;
    std::function<void()> too_long;  // in place of such a line
  };
  // Reads at most about `most_bytes` of what is new. A last line without a newline is left for later.
  void poll(const Hearer& hearer, int64_t most_bytes);

  bool has_more() const { return has_more_; }  // the last poll has left something for the next one
  int64_t read_bytes() const { return read_; }
  int64_t size_bytes() const { return size_; }             // as of the last poll
  const std::string& problem() const { return problem_; }  // why it cannot be read; empty: nothing is wrong
  // Hears whole lines from `begin`, which is where one begins, until `line` returns false. They may be those of another
  // state of the file than the last poll's.
  void read_again(int64_t begin, const std::function<bool(std::string_view text)>& line) const;

 private:
  bool is_still_the_same(int fd) const;

  Spec spec_;
  int64_t read_ = 0, size_ = 0;  // bytes: of whole lines that were heard; of the file
  int64_t device_ = 0, inode_ = 0, changed_ns_ = 0;
  bool in_long_line_ = false, has_more_ = false;
  std::string tail_;  // the last bytes before read_
  std::string problem_;
};

}  // namespace weft
