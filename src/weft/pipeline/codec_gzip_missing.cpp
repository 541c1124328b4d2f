// Instead of codec_gzip.cpp, in a build without zlib.
#include "weft/base/not_built.h"
#include "weft/pipeline/codec.h"

namespace weft {

std::unique_ptr<Codec> make_gzip_codec(const std::string& source) {
  throw NotBuilt(fmt::format("{}: what reads gzip files", source), "zlib", "decompress it");
}

}  // namespace weft
