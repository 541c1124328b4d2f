#include "weft/apps/stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "weft/apps/commands.h"

namespace weft {
namespace {

std::atomic<bool> stop{false};  // a signal handler reaches nothing else
std::atomic<bool> speaks{true};
std::atomic<const char*> words{""};

extern "C" void on_signal(int signal) {
  // The second Ctrl-C: at once. A session that closes sends several signals, and must not lose the run.
  if (stop.exchange(true)) {
    if (signal == SIGINT) _exit(kExitInterrupted);
    return;
  }
  if (!speaks) return;
  const char* text = words;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
}

}  // namespace

const std::atomic<bool>& stop_requested() { return stop; }

// Ranks of an MPI job are asked by SIGUSR1 to save and stop: mpirun leaves no time for it after the other signals.
void listen_to_signals(const char* message) {
  words = message;
  std::signal(SIGPIPE, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);  // as nohup asked
}

void be_silent_about_signals() { speaks = false; }

}  // namespace weft
