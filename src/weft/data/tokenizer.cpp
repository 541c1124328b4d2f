#include "weft/data/tokenizer.h"

#include "weft/base/error.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr int32_t kEnd = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return kEnd + 1; }
  int32_t end_of_document() const override { return kEnd; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (unsigned char c : text) ids.push_back(c);
  }
  bool streams() const override { return true; }
  std::vector<int32_t> encode_prompt(std::string_view text) const override {
    std::vector<int32_t> ids;
    if (text.empty()) ids.push_back(kEnd);  // as at the beginning of a document
    encode(text, ids);
    return ids;
  }
  std::string decode_next(int32_t id, std::string& pending) const override {
    if (id < 0 || id >= kEnd) return "";
    pending += char(id);
    constexpr size_t kLongestCharacter = 4;
    if (utf8_error(pending) != std::string_view::npos && pending.size() < kLongestCharacter && (pending[0] & 0x80) != 0)
      return "";
    return std::exchange(pending, "");
  }
  std::string fingerprint() const override { return "byte-1"; }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::filesystem::path& model_folder,
                                          int64_t model_vocab) {
  if (name != "auto" && name != "byte") {
    throw ConfigError(fmt::format("tokenizer \"{}\": there are auto and byte; give other text as token files", name));
  }
  for (const char* file : {"tokenizer.json", "tokenizer.model", "vocab.json"}) {
    if (name != "auto" || model_folder.empty() || !std::filesystem::exists(model_folder / file)) continue;
    throw ConfigError(
        fmt::format("{}: this version of weft does not read tokenizers; give the data as token files (.bin), or say "
                    "data.tokenizer = \"byte\" to train on bytes",
                    (model_folder / file).string()));
  }
  auto tokenizer = make_byte_tokenizer();
  if (model_vocab < tokenizer->vocab_size()) {
    throw ConfigError(
        fmt::format("the byte tokenizer has {} ids (256 bytes and the end of a document), the model's vocab_size is "
                    "{}; make it {} or "
                    "more, or give token files",
                    tokenizer->vocab_size(), model_vocab, tokenizer->vocab_size()));
  }
  return tokenizer;
}

}  // namespace weft
