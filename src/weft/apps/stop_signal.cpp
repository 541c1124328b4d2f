#include "weft/apps/stop_signal.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>

#include "weft/apps/commands.h"

namespace weft {
namespace {

std::atomic<bool> stop{false};  // a signal handler reaches nothing else
std::atomic<bool> speaks{true};
std::atomic<bool> by_interrupt{false};
std::atomic<const char*> words{""};
std::atomic<int64_t> asked_ns{0};  // by the last SIGINT or SIGTERM

int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

extern "C" void on_signal(int signal) {
  const bool ends = signal == SIGINT || signal == SIGTERM;
  const int64_t now = clock_ns(), before = ends ? asked_ns.exchange(now) : 0;
  if (stop.exchange(true)) {
    if (is_second_wish(signal, before > 0 ? double(now - before) * 1e-9 : 0)) _exit(kExitInterrupted);
    return;
  }
  by_interrupt = signal == SIGINT;
  if (!speaks) return;
  const char* text = words;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
}

}  // namespace

// `timeout` and its like send SIGTERM to a process, and at once to its group.
bool is_second_wish(int signal, double after_s) {
  constexpr double kSame_s = 0.2;
  return signal == SIGINT || (signal == SIGTERM && after_s > kSame_s);
}

const std::atomic<bool>& stop_requested() { return stop; }

// Ranks of an MPI job are asked by SIGUSR1 to save and stop: mpirun leaves no time for it after the other signals.
void listen_to_signals(const char* message) {
  words = message;
  std::signal(SIGPIPE, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);  // as nohup asked
}

void be_silent_about_signals() { speaks = false; }

int status_of_stop() { return by_interrupt ? kExitInterrupted : kExitPreempted; }

}  // namespace weft
