// bzip2, by libbz2.
#include <bzlib.h>

#include <new>

#include "weft/base/error.h"
#include "weft/pipeline/codec.h"

namespace weft {
namespace {

class Bzip2Codec final : public Codec {
 public:
  Bzip2Codec() { init(); }
  ~Bzip2Codec() override { BZ2_bzDecompressEnd(&z_); }
  Step step(std::string_view in, std::span<char> out) override {
    z_.next_in = const_cast<char*>(in.data());
    z_.avail_in = unsigned(in.size());
    z_.next_out = out.data();
    z_.avail_out = unsigned(out.size());
    const int status = BZ2_bzDecompress(&z_);
    if (status != BZ_OK && status != BZ_STREAM_END)
      throw Error(fmt::format("broken bzip2 data (libbz2's error {})", status));
    return {in.size() - z_.avail_in, out.size() - z_.avail_out, status == BZ_STREAM_END};
  }
  void begin_again() override {
    BZ2_bzDecompressEnd(&z_);
    init();
  }

 private:
  void init() {
    z_ = {};
    if (BZ2_bzDecompressInit(&z_, 0, 0) != BZ_OK) throw std::bad_alloc();
  }

  bz_stream z_{};
};

}  // namespace

std::unique_ptr<Codec> make_bzip2_codec(const std::string&) { return std::make_unique<Bzip2Codec>(); }

}  // namespace weft
