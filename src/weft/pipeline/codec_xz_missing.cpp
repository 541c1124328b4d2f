// Instead of codec_xz.cpp, in a build without liblzma.
#include "weft/base/not_built.h"
#include "weft/pipeline/codec.h"

namespace weft {

std::unique_ptr<Codec> make_xz_codec(const std::string& source) {
  throw NotBuilt(fmt::format("{}: what reads xz files", source), "liblzma", "decompress it");
}

}  // namespace weft
