// Instead of codec_bzip2.cpp, in a build without libbz2.
#include "weft/base/not_built.h"
#include "weft/pipeline/codec.h"

namespace weft {

std::unique_ptr<Codec> make_bzip2_codec(const std::string& source) {
  throw NotBuilt(fmt::format("{}: what reads bzip2 files", source), "bzip2", "decompress it");
}

}  // namespace weft
