// Instead of codec_snappy.cpp, in a build without snappy.
#include "weft/base/not_built.h"
#include "weft/pipeline/codec.h"

namespace weft {

void decompress_snappy(std::string_view, std::span<char>, const std::string& source) {
  throw NotBuilt(fmt::format("{}: what reads Parquet with snappy", source), "snappy", "write it with zstd");
}

}  // namespace weft
