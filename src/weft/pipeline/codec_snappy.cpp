// snappy's blocks, by its own library.
#include <snappy-c.h>

#include "weft/base/error.h"
#include "weft/pipeline/codec.h"

namespace weft {

void decompress_snappy(std::string_view block, std::span<char> out, const std::string&) {
  size_t size = 0;
  const bool same = snappy_uncompressed_length(block.data(), block.size(), &size) == SNAPPY_OK && size == out.size();
  if (!same || snappy_uncompress(block.data(), block.size(), out.data(), &size) != SNAPPY_OK)
    throw Error("broken snappy data");
}

}  // namespace weft
