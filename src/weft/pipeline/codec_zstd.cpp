// zstd, by its own library.
#include <zstd.h>

#include <new>

#include "weft/base/error.h"
#include "weft/pipeline/codec.h"

namespace weft {
namespace {

class ZstdCodec final : public Codec {
 public:
  ZstdCodec() : z_(ZSTD_createDStream()) {
    if (z_ == nullptr) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(z_, ZSTD_d_windowLogMax, 27);  // 128 MiB of memory at most
  }
  ~ZstdCodec() override { ZSTD_freeDStream(z_); }
  Step step(std::string_view in, std::span<char> out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t status = ZSTD_decompressStream(z_, &to, &from);
    if (ZSTD_isError(status)) throw Error(fmt::format("broken zstd data ({})", ZSTD_getErrorName(status)));
    return {from.pos, to.pos, status == 0};
  }
  void begin_again() override { ZSTD_DCtx_reset(z_, ZSTD_reset_session_only); }

 private:
  ZSTD_DStream* z_;
};

}  // namespace

std::unique_ptr<Codec> make_zstd_codec(const std::string&) { return std::make_unique<ZstdCodec>(); }
void need_zstd(std::string_view) {}

std::string zstd_compressed(std::string_view text, int level) {
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  const size_t n = ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), level);
  WEFT_CHECK(!ZSTD_isError(n), "zstd: {}", ZSTD_getErrorName(n));
  bytes.resize(n);
  return bytes;
}

}  // namespace weft
