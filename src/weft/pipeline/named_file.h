// Files that keys of a pipeline name.
#pragma once
#include <string>

#include "weft/base/error.h"

namespace weft {

// What read() gives. An Error of it becomes a ConfigError that begins with the key, unless it names the key itself.
template <class Read>
auto read_named(const std::string& key, const Read& read) {
  try {
    return read();
  } catch (const Error& e) {
    const std::string what = e.what();
    throw ConfigError(what.find(key) == std::string::npos ? fmt::format("{}: {}", key, what) : what);
  }
}

}  // namespace weft
