#include "weft/base/error.h"

namespace weft {

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  throw CheckFailure(fmt::format("{}:{}: check failed: {} ({})", file, line, condition, message));
}

}  // namespace weft
