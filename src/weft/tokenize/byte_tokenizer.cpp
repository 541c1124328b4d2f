#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

constexpr int32_t kEnd = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return kEnd + 1; }
  int32_t end_of_document() const override { return kEnd; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText) const override {
    for (unsigned char c : text) ids.push_back(c);
  }
  size_t cut_between(std::string_view, size_t, size_t to) const override { return to; }
  std::string decode(std::span<const int32_t> ids, Specials) const override {
    std::string text;
    for (int32_t id : ids)
      if (id >= 0 && id < kEnd) text += char(id);
    return text;
  }
  std::string fingerprint() const override { return "byte-1"; }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace weft
