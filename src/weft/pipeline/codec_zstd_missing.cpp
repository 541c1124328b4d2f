// Instead of codec_zstd.cpp, in a build without zstd.
#include "weft/base/not_built.h"
#include "weft/pipeline/codec.h"

namespace weft {

std::unique_ptr<Codec> make_zstd_codec(const std::string& source) {
  throw NotBuilt(fmt::format("{}: what reads zstd files", source), "zstd", "decompress it");
}

void need_zstd(std::string_view what) {
  throw NotBuilt(fmt::format("{}: what compresses shards", what), "zstd", "set run.compression = \"none\"");
}
std::string zstd_compressed(std::string_view, int) {
  need_zstd("a shard");
  return {};
}

}  // namespace weft
