// How a command says that it has failed.
#pragma once
#include <string>

namespace weft {

// The exit status of a run that went to its end, or stopped when asked to, but whose last save failed.
inline constexpr int kExitNotSaved = 89;

// Writes the message to standard error, as "weft COMMAND: error: ...", and returns the status. As a rank that weft's
// own launcher has started, tells it to the launcher, which says it once, when all has ended.
int say_error(const std::string& command, const std::string& message, int status);
// The same of the exception that is being handled, with its exit status.
int say_failure(const std::string& command);

}  // namespace weft
