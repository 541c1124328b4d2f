// gzip, by zlib.
#include <zlib.h>

#include <new>

#include "weft/base/error.h"
#include "weft/pipeline/codec.h"

namespace weft {
namespace {

class GzipCodec final : public Codec {
 public:
  GzipCodec() {
    if (inflateInit2(&z_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~GzipCodec() override { inflateEnd(&z_); }
  Step step(std::string_view in, std::span<char> out) override {
    z_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    z_.avail_in = uInt(in.size());
    z_.next_out = reinterpret_cast<Bytef*>(out.data());
    z_.avail_out = uInt(out.size());
    const int status = inflate(&z_, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      throw Error(fmt::format("broken gzip data ({})", z_.msg != nullptr ? z_.msg : "no reason known"));
    return {in.size() - z_.avail_in, out.size() - z_.avail_out, status == Z_STREAM_END};
  }
  void begin_again() override { inflateReset(&z_); }

 private:
  z_stream z_{};
};

}  // namespace

std::unique_ptr<Codec> make_gzip_codec(const std::string&) { return std::make_unique<GzipCodec>(); }

}  // namespace weft
