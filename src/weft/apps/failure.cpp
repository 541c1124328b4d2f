#include "weft/apps/failure.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <new>

#include "weft/apps/commands.h"
#include "weft/apps/launch.h"
#include "weft/apps/launcher_words.h"
#include "weft/base/error.h"
#include "weft/train/trainer.h"

namespace weft {

int say_error(const std::string& command, const std::string& message, int status) {
  if (std::getenv(kHasLauncher) != nullptr) {
    const std::string record = record_of_error(command, message);
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, record.data(), record.size());
    return status;
  }
  const bool colour = isatty(STDERR_FILENO) == 1;
  std::cerr << "weft" << (command.empty() ? "" : " " + command) << (colour ? ": \033[1;31merror:\033[0m " : ": error: ")
            << message << std::endl;
  return status;
}

int say_failure(const std::string& command) {
  try {
    throw;
  } catch (const ConfigError& e) { return say_error(command, e.what(), kExitUsage); } catch (const NotSavedError& e) {
    return say_error(command, e.what(), kExitNotSaved);
  } catch (const Error& e) { return say_error(command, e.what(), kExitFailure); } catch (const CheckFailure& e) {
    return say_error(command, fmt::format("{}\nThis is a bug in weft: please report it with the command.", e.what()),
                     kExitFailure);
  } catch (const std::bad_alloc&) {
    return say_error(command, "out of memory; `weft plan` shows what the recipe needs", kExitFailure);
  } catch (const std::exception& e) { return say_error(command, e.what(), kExitFailure); }
}

}  // namespace weft
