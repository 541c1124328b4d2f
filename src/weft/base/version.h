// The version of weft, as it is told and written into files.
#pragma once

namespace weft {
inline constexpr const char* kVersion = "weft 0.1.0";
}
