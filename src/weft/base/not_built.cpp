#include "weft/base/not_built.h"

namespace weft {

NotBuilt::NotBuilt(std::string_view what, std::string_view library, std::string_view or_else)
    : ConfigError(
          fmt::format("{} is not in this build of weft: it was built without {}; {}{}install it (scripts/install) and "
                      "build anew",
                      what, library, or_else, or_else.empty() ? "" : ", or ")) {}

}  // namespace weft
