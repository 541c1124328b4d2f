// One attempt of a supervised run: a process of weft's own, watched from its start to the end of the last process that
// came of it.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/apps/launcher_words.h"
#include "weft/records/heartbeat.h"

namespace weft {

// In the environment of an attempt: the descriptor to which its error is told (record_of_error); the file of its
// heartbeat, which the supervisor holds open; the supervisor's host, as some launchers pass all of these to others; its
// number, from 1 on.
inline constexpr const char* kErrorsTo = "WEFT_ERRORS_TO";
inline constexpr const char* kHeartbeatFile = "WEFT_HEARTBEAT";
inline constexpr const char* kSupervisorHost = "WEFT_SUPERVISOR_HOST";
inline constexpr const char* kAttempt = "WEFT_ATTEMPT";
// How long a step may last at least (SectionLimits), in seconds: ranks that can say who hangs do so before.
inline constexpr const char* kHangSeconds = "WEFT_HANG_SECONDS";
// And, for tests: the faults of plant_faults.
inline constexpr const char* kFaults = "WEFT_FAULT";

// How long a section may last before nothing is taken to go on any more. A step: ten times as long as the longest so
// far in this attempt and phase, at least `least_s`. Any other section, which waits for disks: likewise, at least a
// sixth of `first_s`. The setup, and before one of its kind has ended: `first_s`.
struct SectionLimits {
  double least_s, first_s;
  double limit_s(const Beat& beat) const;
};

struct Hang {
  RunSection section;
  double seconds;     // since the last sign of life
  std::string where;  // "rank 1, process 12 has been stopped by a signal"; empty: nothing tells
};

struct AttemptEnd {
  int raw = 0;  // as waitpid has it
  Beat last;    // before it ended
  std::optional<Hang> hang;
  std::optional<ToldError> error;
  std::string crash;           // the file with the stack of one; empty: there was none, or it could not be written
  bool out_of_memory = false;  // the kernel has killed for want of memory meanwhile
  bool to_move = false;        // it was asked to save and end, to go on with other ranks, or later
  bool to_yield = false;       // that was for another run of this machine
  // The supervisor was asked to stop, and has passed it on; and then to end at once.
  bool asked = false, by_interrupt = false, at_once = false;
};

// Blocks the signals that ask a supervisor to stop, and hands them out. One at a time in a process.
class StopRequests {
 public:
  StopRequests();
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;
  // The next signal, SIGCHLD among them; 0: none within the time. Those but SIGCHLD are remembered.
  int wait_ms(int ms);
  bool asked() const { return asked_; }
  bool at_once() const { return at_once_; }  // again, in earnest (is_second_wish)
  bool by_interrupt() const { return by_interrupt_; }
  const sigset_t& mask_before() const { return before_; }

 private:
  sigset_t before_;
  int signals_ = -1;
  bool asked_ = false, at_once_ = false, by_interrupt_ = false;
  double last_s_ = 0;  // of SIGINT or SIGTERM
};

struct AttemptSpec {
  std::vector<std::string> command;
  int number = 1;
  std::set<pid_t> strangers = {};  // children of this process that are not of the run
  std::string hosts = {};          // to start ranks on, as kHosts has them; empty: it is not told
  // Asked again and again once there are steps: whether it is to save and end, to go on with other ranks, or later.
  std::function<bool()> is_to_move = [] { return false; };
  double hang_s = 30;  // SectionLimits::least_s, for the run
};
// Starts the command and waits for its end; none of its processes is left then. A request to stop reaches it as
// SIGTERM, after which it saves; another one, in earnest, ends it at once. It ends with this process. Throws Error
// where no process can be started.
AttemptEnd run_attempt(const AttemptSpec& spec, const SectionLimits& limits, StopRequests& requests);
// What this process has started itself, or its program before it.
std::set<pid_t> children_here();

}  // namespace weft
