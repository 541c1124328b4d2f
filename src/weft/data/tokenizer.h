// Text to token ids and back.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Immutable; any thread may use it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;
  virtual int32_t end_of_document() const = 0;  // follows each document; -1: none
  // Appends the ids of a piece of text. Pieces of a document may be cut anywhere only if `streams`.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  virtual bool streams() const = 0;
  // The ids that a model is fed to continue a text (with a beginning-of-text token where the tokenizer has one).
  virtual std::vector<int32_t> encode_prompt(std::string_view text) const = 0;
  // The text of the next token of a sequence; `first` of a text. Bytes of a character that is not complete wait in
  // `pending`.
  virtual std::string decode_next(int32_t id, bool first, std::string& pending) const = 0;
  virtual std::string fingerprint() const = 0;  // differs where ids may differ
};

// Ids 0 .. 255 are bytes, 256 ends a document. Needs no file.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// A SentencePiece model, read by its own library. Each document begins with its beginning-of-text token. Throws
// FileError.
std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& file);

// By the name in a recipe: "byte", the path of a SentencePiece .model, or "auto" (what the model's folder holds;
// without tokenizer files, bytes). Throws ConfigError where the model's vocabulary is too small for it, or where it is
// a tokenizer that weft does not read yet.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::filesystem::path& model_folder,
                                          int64_t model_vocab);

}  // namespace weft
