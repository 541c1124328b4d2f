// What a supervisor does when an attempt of a run has ended.
#pragma once
#include <cstdint>
#include <string>

#include "weft/apps/supervised_attempt.h"

namespace weft {

// Why an attempt ended.
enum class AttemptCause : uint8_t {
  finished,
  preempted,      // asked to stop, and saved; or before there was anything to save
  moved,          // asked to save, to go on with other ranks
  yielded,        // asked to save, for another run of this machine, and to go on behind it
  usage,          // a recipe or command that cannot be run
  hang,           // ended by itself, or by the supervisor
  out_of_memory,  // killed, while the kernel killed for want of memory
  killed,         // by a signal
  corrupted,      // ranks that should hold the same bytes did not
  not_finite,
  spikes,  // more of them than the recipe allows
  not_saved,
  no_checkpoint,
  wrong_world,
  ended_early,  // with status 0, before the run was finished
  failed,       // with any other status
};
std::string_view name_of(AttemptCause cause);

AttemptCause cause_of(const AttemptEnd& end);
// The cause in words, with what the run itself has told: "rank 1 was killed ...". One line.
std::string reason_of(const AttemptEnd& end);

// Decides whether to start again. Attempts without progress (a newer checkpoint than there was before) are counted.
class Attempts {
 public:
  struct Verdict {
    bool again = false;
    double delay_s = 0;  // before it
    int status = 0;      // of the supervisor, where there is no other attempt
  };
  // `most`: attempts without progress in a row, from 1 on.
  explicit Attempts(int64_t most) : most_(most) {}
  Verdict judge(const AttemptEnd& end, bool progressed);
  int64_t without_progress() const { return without_progress_; }

 private:
  const int64_t most_;
  int64_t judged_ = 0, without_progress_ = 0;
};

}  // namespace weft
