// How a command says that it has failed.
#pragma once
#include <string>

namespace weft {

// Writes the message to standard error, as "weft COMMAND: error: ...", and returns the status. A rank started by weft's
// own launcher tells the launcher instead, which prints it once when all ranks have ended. A supervisor is told, too.
int say_error(const std::string& command, const std::string& message, int status);
// The exception that is being handled, as it is told.
struct FailureTold {
  std::string message;
  int status = 0;  // the exit status
};
FailureTold failure_told();
// say_error of that.
int say_failure(const std::string& command);

// From now on a bus error (a mapped file was shortened, or its disk fails) ends the process with a message that names
// the file, as `command`'s error, and with the status of a failure. As rank `rank` of several processes it lets the
// first rank speak. Other bus errors end it as before.
void report_lost_files(const std::string& command, int rank);

}  // namespace weft
