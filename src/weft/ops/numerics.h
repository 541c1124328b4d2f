// How reproducible a rank's results are, to the last bit.
#pragma once
#include <cstdint>

namespace weft {

// fast       the same bits on every repeat with the same shapes and number of threads
// invariant  the same bits for any number of threads as well
enum class Numerics : uint8_t { fast, invariant };

}  // namespace weft
