#include "weft/data/tokenizer.h"

#include <sentencepiece_processor.h>
#include <xxhash.h>

#include <utility>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr int32_t kEnd = 256;

// Adds a byte of UTF-8; the whole character when it is complete (or cannot become one), else nothing.
std::string complete(char byte, std::string& pending) {
  constexpr size_t kLongestCharacter = 4;
  pending += byte;
  const bool waits =
      utf8_error(pending) != std::string_view::npos && pending.size() < kLongestCharacter && (pending[0] & 0x80) != 0;
  return waits ? "" : std::exchange(pending, "");
}

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
  std::string decode_next(int32_t id, bool, std::string& pending) const override {
    if (id < 0 || id >= kEnd) return "";
    return complete(char(id), pending);
  }
  std::string fingerprint() const override { return "byte-1"; }
};

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(const std::filesystem::path& file) {
    const MappedFile mapped(file);
    const auto status = model_.LoadFromSerializedProto({mapped.text().data(), mapped.text().size()});
    if (!status.ok()) throw FileError(fmt::format("{}: no SentencePiece model: {}", file.string(), status.ToString()));
    fingerprint_ = fmt::format("sentencepiece-{:016x}", XXH64(mapped.text().data(), mapped.text().size(), 0));
  }
  int64_t vocab_size() const override { return model_.GetPieceSize(); }
  int32_t end_of_document() const override { return model_.eos_id(); }
  bool streams() const override { return false; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int> pieces;
    const auto status = model_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) throw Error(fmt::format("SentencePiece cannot encode the text: {}", status.ToString()));
    if (model_.bos_id() >= 0) ids.push_back(model_.bos_id());
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }
  std::vector<int32_t> encode_prompt(std::string_view text) const override {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }
  std::string decode_next(int32_t id, bool first, std::string& pending) const override {
    if (id < 0 || id >= vocab_size() || model_.IsControl(id)) return "";
    const std::string piece = model_.IdToPiece(id);
    if (model_.IsByte(id)) return complete(char(std::stoi(piece.substr(3, 2), nullptr, 16)), pending);  // "<0xE2>"
    constexpr std::string_view kSpace = "\xe2\x96\x81";
    std::string text = std::exchange(pending, "");
    for (size_t at = 0; at < piece.size();) {
      const bool space = std::string_view(piece).substr(at, kSpace.size()) == kSpace;
      if (!space)
        text += piece[at];
      else if (!first || at > 0)
        text += ' ';  // the space that it puts before a text
      at += space ? kSpace.size() : 1;
    }
    return text;
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  sentencepiece::SentencePieceProcessor model_;
  std::string fingerprint_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& file) {
  return std::make_unique<SentencePiece>(file);
}

namespace {

// The tokenizer of a name, whatever the model.
std::unique_ptr<Tokenizer> named_tokenizer(const std::string& name, const std::filesystem::path& model_folder) {
  if (name == "byte") return make_byte_tokenizer();
  if (name != "auto") {
    if (std::filesystem::path(name).extension() == ".model") return open_sentencepiece(name);
    throw ConfigError(fmt::format(
        "tokenizer \"{}\": there are auto, byte, and SentencePiece files (.model); give other text as token files",
        name));
  }
  if (model_folder.empty()) return make_byte_tokenizer();
  for (const char* file : {"tokenizer.json", "vocab.json"}) {
    if (!std::filesystem::exists(model_folder / file)) continue;
    throw ConfigError(fmt::format(
        "{}: this version of weft does not read it; give the data as token files (.bin), or say tokenizer = \"byte\"",
        (model_folder / file).string()));
  }
  if (std::filesystem::exists(model_folder / "tokenizer.model"))
    return open_sentencepiece(model_folder / "tokenizer.model");
  return make_byte_tokenizer();
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::filesystem::path& model_folder,
                                          int64_t model_vocab) {
  auto tokenizer = named_tokenizer(name, model_folder);
  if (model_vocab < tokenizer->vocab_size()) {
    const bool bytes = tokenizer->streams();
    throw ConfigError(
        fmt::format("the tokenizer ({}) has {} ids, the model's vocab_size is {}; make it {} or more, or give another "
                    "tokenizer or token files",
                    bytes ? "byte: 256 bytes and the end of a document" : tokenizer->fingerprint(),
                    tokenizer->vocab_size(), model_vocab, tokenizer->vocab_size()));
  }
  return tokenizer;
}

}  // namespace weft
