// How weft fails. The outside world (files, recipes, peers) throws an Error whose message says what went wrong, where,
// and what to do about it. A programmer's error is a WEFT_CHECK: always on, and it throws too, so tests can see it.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace weft {

// Base of everything the outside world can cause.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

// A recipe, command line or model configuration that cannot be run as written.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// A file that is missing, truncated, malformed, or could not be written. The message begins with its path.
class FileError : public Error {
 public:
  using Error::Error;
};

// A value that is not a number, or infinite, where training cannot go on.
class NumericsError : public Error {
 public:
  using Error::Error;
};

// Tensors whose placements a kernel or boundary cannot combine. Found by the dry run, before any data is touched.
class PlacementError : public Error {
 public:
  using Error::Error;
};

// A communicator that failed or was given different calls by different ranks; it is dead afterwards.
class CommError : public Error {
 public:
  using Error::Error;
};

// A broken promise inside weft: please report it.
class CheckFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition, const std::string& message);

}  // namespace weft

// WEFT_CHECK(condition, "format {}", values...): always on.
#define WEFT_CHECK(condition, ...)                                                                  \
  do {                                                                                              \
    if (!(condition)) ::weft::fail_check(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
