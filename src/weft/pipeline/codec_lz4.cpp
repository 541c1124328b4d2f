// lz4's frames and blocks, by its own library.
#include <lz4.h>
#include <lz4frame.h>

#include <climits>
#include <new>

#include "weft/base/error.h"
#include "weft/pipeline/codec.h"

namespace weft {
namespace {

class Lz4Codec final : public Codec {
 public:
  Lz4Codec() {
    if (LZ4F_isError(LZ4F_createDecompressionContext(&z_, LZ4F_VERSION))) throw std::bad_alloc();
  }
  ~Lz4Codec() override { LZ4F_freeDecompressionContext(z_); }
  Step step(std::string_view in, std::span<char> out) override {
    size_t taken = in.size(), made = out.size();
    const size_t status = LZ4F_decompress(z_, out.data(), &made, in.data(), &taken, nullptr);
    if (LZ4F_isError(status)) throw Error(fmt::format("broken lz4 data ({})", LZ4F_getErrorName(status)));
    return {taken, made, status == 0};
  }
  void begin_again() override { LZ4F_resetDecompressionContext(z_); }

 private:
  LZ4F_dctx* z_ = nullptr;
};

}  // namespace

std::unique_ptr<Codec> make_lz4_codec(const std::string&) { return std::make_unique<Lz4Codec>(); }

void decompress_lz4(std::string_view block, std::span<char> out, const std::string&) {
  const bool fits = block.size() <= size_t(INT_MAX) && out.size() <= size_t(INT_MAX);
  if (!fits || LZ4_decompress_safe(block.data(), out.data(), int(block.size()), int(out.size())) != int(out.size()))
    throw Error("broken lz4 data");
}

}  // namespace weft
