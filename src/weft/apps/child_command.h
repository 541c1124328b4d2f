// A program that is run for what it prints, beside other work.
#pragma once
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/descriptor.h"

namespace weft {

// Runs in a process group of its own, which ends with this object, with this process, and after `limit_s`. Its standard
// error is this process's, or nothing where it is to be quiet. Its standard input is the text `input`.
class ChildCommand {
 public:
  struct Answer {
    bool good = false;  // it ended with status 0 in time
    std::string text;   // what it printed, at most kLongest bytes; else why it is not good: "ended with status 1"
  };
  ChildCommand(const std::vector<std::string>& words, double limit_s, bool quiet = false,
               const std::string& input = "");
  ~ChildCommand();
  ChildCommand(ChildCommand&& other) noexcept;
  ChildCommand(const ChildCommand&) = delete;
  ChildCommand& operator=(const ChildCommand&) = delete;

  // None: not yet. Does not wait.
  std::optional<Answer> poll();
  // Waits for it; not good where `is_asked_to_stop` says so meanwhile.
  Answer wait(const std::function<bool()>& is_asked_to_stop);

  static constexpr size_t kLongest = 1 << 20;

 private:
  Answer end(const std::string& why);
  void read_what_came();

  Descriptor output_;
  pid_t process_ = -1;
  double limit_s_, till_s_;
  std::string text_;
  std::optional<Answer> answer_;
};

}  // namespace weft
