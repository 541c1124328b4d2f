// xz, by liblzma.
#include <lzma.h>

#include <new>

#include "weft/base/error.h"
#include "weft/pipeline/codec.h"

namespace weft {
namespace {

class XzCodec final : public Codec {
 public:
  XzCodec() { begin_again(); }
  ~XzCodec() override { lzma_end(&z_); }
  Step step(std::string_view in, std::span<char> out) override {
    z_.next_in = reinterpret_cast<const uint8_t*>(in.data());
    z_.avail_in = in.size();
    z_.next_out = reinterpret_cast<uint8_t*>(out.data());
    z_.avail_out = out.size();
    const lzma_ret status = lzma_code(&z_, LZMA_RUN);
    if (status == LZMA_MEMLIMIT_ERROR) throw Error("xz data that needs more than 256 MiB of memory");
    if (status != LZMA_OK && status != LZMA_STREAM_END && status != LZMA_BUF_ERROR)
      throw Error(fmt::format("broken xz data (liblzma's error {})", int(status)));
    return {in.size() - z_.avail_in, out.size() - z_.avail_out, status == LZMA_STREAM_END};
  }
  void begin_again() override {
    if (lzma_stream_decoder(&z_, uint64_t{256} << 20, 0) != LZMA_OK) throw std::bad_alloc();
  }

 private:
  lzma_stream z_ = LZMA_STREAM_INIT;
};

}  // namespace

std::unique_ptr<Codec> make_xz_codec(const std::string&) { return std::make_unique<XzCodec>(); }

}  // namespace weft
