// Instead of codec_lz4.cpp, in a build without lz4.
#include "weft/base/not_built.h"
#include "weft/pipeline/codec.h"

namespace weft {

std::unique_ptr<Codec> make_lz4_codec(const std::string& source) {
  throw NotBuilt(fmt::format("{}: what reads lz4 files", source), "lz4", "decompress it");
}
void decompress_lz4(std::string_view, std::span<char>, const std::string& source) {
  throw NotBuilt(fmt::format("{}: what reads Parquet with lz4", source), "lz4", "write it with zstd");
}

}  // namespace weft
