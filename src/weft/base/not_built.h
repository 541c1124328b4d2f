// Features that this build of weft leaves out, because a library was missing.
#pragma once
#include <string_view>

#include "weft/base/error.h"

namespace weft {

// A requested feature needs a library that this build lacks. It always ends the work: no row, document or file is put
// aside for it.
class NotBuilt : public ConfigError {
 public:
  // "WHAT is not in this build of weft: it was built without LIBRARY; install it (scripts/install) and build anew".
  // `or_else`: what else there is to do: "set run.compression = \"none\"".
  NotBuilt(std::string_view what, std::string_view library, std::string_view or_else = "");
};

}  // namespace weft
