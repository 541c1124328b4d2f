#include "weft/apps/attempts.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>

#include "weft/apps/commands.h"
#include "weft/base/error.h"

namespace weft {

std::string_view name_of(AttemptCause cause) {
  constexpr std::string_view kNames[] = {
      "finished",  "preempted",  "moved",  "yielded",   "usage",         "hang",        "out_of_memory", "killed",
      "corrupted", "not_finite", "spikes", "not_saved", "no_checkpoint", "wrong_world", "ended_early",   "failed"};
  return kNames[size_t(cause)];
}

namespace {

constexpr int kBySignal = 128;
int status_of(int raw) { return WIFEXITED(raw) ? WEXITSTATUS(raw) : kBySignal + WTERMSIG(raw); }
int signal_of(int raw) { return status_of(raw) - kBySignal; }

}  // namespace

AttemptCause cause_of(const AttemptEnd& end) {
  if (end.hang) return AttemptCause::hang;
  const int status = status_of(end.raw);
  // The supervisor's own signal ends a run that has not begun to listen: it has nothing that it could save.
  if (end.asked && !end.at_once && status == kBySignal + SIGTERM) return AttemptCause::preempted;
  switch (status) {
    case kExitOk:
      return end.last.section == RunSection::finished ? AttemptCause::finished : AttemptCause::ended_early;
    case kExitPreempted:
    case kExitInterrupted:
      if (!end.to_move || end.asked) return AttemptCause::preempted;
      return end.to_yield ? AttemptCause::yielded : AttemptCause::moved;
    case kExitUsage:
      return AttemptCause::usage;
    case kExitHang:
      return AttemptCause::hang;
    case kExitCorrupted:
      return AttemptCause::corrupted;
    case kExitNotFinite:
      return AttemptCause::not_finite;
    case kExitSpikes:
      return AttemptCause::spikes;
    case kExitNotSaved:
      return AttemptCause::not_saved;
    case kExitNoCheckpoint:
      return AttemptCause::no_checkpoint;
    case kExitWrongWorld:
      return AttemptCause::wrong_world;
    default:
      break;
  }
  if (end.out_of_memory) return AttemptCause::out_of_memory;
  return status > kBySignal ? AttemptCause::killed : AttemptCause::failed;
}

namespace {

std::string where_text(const AttemptEnd& end) {
  const Beat& at = end.last;
  if (at.number == 0) return "before the first step";
  if (at.section == RunSection::step) return fmt::format("in step {}", at.step + 1);
  return fmt::format("in {} {} after step {}", at.section == RunSection::evaluation ? "an" : "a", name_of(at.section),
                     at.step);
}

std::string text_of(AttemptCause cause, const AttemptEnd& end) {
  switch (cause) {
    case AttemptCause::hang:
      if (!end.hang) return "nothing went on any more";
      return fmt::format("nothing went on for {:.0f} s{}", end.hang->seconds,
                         end.hang->where.empty() ? "" : ": " + end.hang->where);
    case AttemptCause::out_of_memory:
      return "the kernel has killed for want of memory";
    case AttemptCause::killed:
      return fmt::format("ended by signal {} ({})", signal_of(end.raw), strsignal(signal_of(end.raw)));
    case AttemptCause::ended_early:
      return "ended with status 0 before the run was finished";
    case AttemptCause::finished:
    case AttemptCause::preempted:
    case AttemptCause::moved:
    case AttemptCause::yielded:
      return std::string(name_of(cause));
    default:
      return fmt::format("ended with status {}", WEXITSTATUS(end.raw));
  }
}

}  // namespace

std::string reason_of(const AttemptEnd& end) {
  std::string text = fmt::format("{}, {}", where_text(end), text_of(cause_of(end), end));
  if (end.error) text += fmt::format(": {}: {}", end.error->command, end.error->message);
  if (!end.crash.empty()) text += fmt::format("; {} has the stack", end.crash);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Attempts::Verdict Attempts::judge(const AttemptEnd& end, bool progressed) {
  const AttemptCause cause = cause_of(end);
  ++judged_;
  if (cause == AttemptCause::moved || cause == AttemptCause::yielded) return {.again = true, .delay_s = 0, .status = 0};
  without_progress_ = progressed ? 0 : without_progress_ + 1;
  if (cause == AttemptCause::finished) return {.status = kExitOk};
  if (end.asked) {
    if (end.at_once) return {.status = kExitInterrupted};
    if (cause == AttemptCause::preempted) return {.status = end.by_interrupt ? kExitInterrupted : kExitPreempted};
    return {.status = cause == AttemptCause::hang ? kExitHang : status_of(end.raw)};
  }
  // What cannot run at first is not helped by trying; later, something may be missing that comes back.
  if (cause == AttemptCause::usage && judged_ == 1) return {.status = kExitUsage};
  if (without_progress_ >= most_) return {.status = kExitNoProgress};
  // At once after progress; then 1, 2, 4, ... seconds, to a minute.
  constexpr double kLongest_s = 60;
  const double delay = without_progress_ == 0 ? 0 : std::ldexp(0.5, int(std::min<int64_t>(without_progress_, 10)));
  return {.again = true, .delay_s = std::min(delay, kLongest_s), .status = 0};
}

}  // namespace weft
