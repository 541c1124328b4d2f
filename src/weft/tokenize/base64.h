// Base64, as rank files and character maps are written.                                    RFC 4648, section 4
#pragma once
#include <string>
#include <string_view>

namespace weft {

// Throws FileError, beginning with `source`, where it is not base64.
std::string from_base64(std::string_view text, const std::string& source);

}  // namespace weft
