// UTF-8, as far as reading untrusted text needs it.
#pragma once
#include <cstddef>
#include <string_view>

namespace weft {

// The offset of the first byte that is not part of well-formed UTF-8 (no overlong forms, no surrogates, nothing above
// U+10FFFF: Unicode 15, table 3-7), or npos where all of `text` is.
size_t utf8_error(std::string_view text);

}  // namespace weft
