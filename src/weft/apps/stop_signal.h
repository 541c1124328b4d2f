// Ctrl-C and its like, as a flag.
#pragma once
#include <atomic>

namespace weft {

// Whether this signal asks a command that is stopping already to end at once, where the last SIGINT or SIGTERM was so
// many seconds ago (0: there was none). SIGHUP does not: a session that closes sends it beside others, and must not
// lose the run.
bool is_second_wish(int signal, double after_s);
// Set by SIGINT, SIGTERM, SIGHUP and SIGUSR1 once listen_to_signals was called; the second SIGINT or SIGTERM ends the
// program.
const std::atomic<bool>& stop_requested();
// `message` is written to standard error at the first signal; it must live for ever. Signals that were ignored before
// stay so, and a reader that goes away does not end the program.
void listen_to_signals(const char* message);
// Prints no message at a signal: another process does.
void be_silent_about_signals();
// The exit status of a run that has stopped and saved: as Ctrl-C asked, or another of these signals did first.
int status_of_stop();

}  // namespace weft
