// Text to token ids and back.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Whether special tokens written out in a text are plain text, or the tokens that they name.
enum class SpecialText { kText, kParsed };

// Immutable; any thread may use it. A text that is not UTF-8 is encoded with U+FFFD for what is broken (by the byte
// tokenizer as it is).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  virtual int32_t end_of_document() const = 0;  // follows each document; -1: none
  // What each document begins with, and what a model is fed before a text: often nothing.
  virtual std::vector<int32_t> beginning() const { return {}; }
  // What the tokenizer's own rules put after a text (BERT's [SEP], T5's </s>): often nothing.
  virtual std::vector<int32_t> ending() const { return {}; }
  // Appends the ids of a document, without beginning and end. Throws Error where a rule of the tokenizer gives up; no
  // text is ever left out silently.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) const = 0;
  void encode(std::string_view text, std::vector<int32_t>& ids) const { encode(text, ids, SpecialText::kText); }
  // The same ids, on up to num_threads threads.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special, int num_threads) const;
  // The last place after `from`, up to `to`, where the text may be cut: the ids of both parts, one after the other, are
  // those of the whole. 0: none is known.
  virtual size_t cut_between(std::string_view text, size_t from, size_t to) const = 0;
  // The text of ids. Bytes that are not UTF-8 stay what they are. Ids without a token are nothing.
  enum class Specials { kShown, kHidden };
  virtual std::string decode(std::span<const int32_t> ids, Specials specials) const = 0;
  virtual std::string fingerprint() const = 0;  // differs where ids may differ
};

// The ids that a model is fed to continue a text: never none where the tokenizer has any mark to begin with.
std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view text);

// Text as its tokens come, one after the other; a character appears when it is complete. The tokenizer must outlive it.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // These come before the text, which is shown from here on.
  void follow(std::span<const int32_t> ids);
  // What the next token adds to the text.
  std::string next(int32_t id);

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> recent_;  // the last ids that were shown, then those that are not yet
  size_t shown_ = 0;             // how many of them
};

// Ids 0 .. 255 are bytes, 256 ends a document. Needs no file.
std::unique_ptr<Tokenizer> make_byte_tokenizer();
// The same as a tokenizer.json, for the folder of a model: other programs read it, and make the same ids of a text that
// is UTF-8; read_tokenizer knows it for the byte tokenizer as long as nothing in it is changed.
std::string byte_tokenizer_json();

// A SentencePiece model, read by its own library. What stands around a text is as tokenizer_config.json beside it says
// (add_bos_token, add_eos_token, the names of both); where it is silent, the token that begins a text where the model
// has one (Llama), and the one that ends it where it has only that (T5). Throws FileError.
std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& file);

// A rank file does not say how its text is split: r50k, cl100k, o200k, llama3 or qwen2. Empty: by the file's name.
struct TokenizerOptions {
  std::string pattern;
};

// What `path` holds: a model's folder or GGUF file, tokenizer.json, vocab.json or encoder.json (merges beside it), a
// SentencePiece model, or a file of ranks (tiktoken). JSON is known by what it holds, whatever the file's name.
// tokenizer_config.json beside it names the special tokens. Throws FileError or ConfigError that says what is not
// known.
std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& path, const TokenizerOptions& options = {});

// The fingerprint of what `path` holds; behind it, where `path` is a GGUF file that says so (weft's own do), that of
// the tokenizer of which its vocabulary was made: ids mean the same to both. Throws as read_tokenizer does.
std::vector<std::string> tokenizer_fingerprints(const std::filesystem::path& path);

// The file of a folder that holds its tokenizer, as read_tokenizer finds it; of a GGUF file with a tokenizer, that
// file, even if weft cannot read the tokenizer; empty: there is none. Throws FileError where a GGUF file is broken.
std::filesystem::path find_tokenizer(const std::filesystem::path& folder);
// A file, and the name that it needs in a folder for the tokenizer's to be found and to be the same there.
struct TokenizerFile {
  std::filesystem::path from;
  std::string name;
  std::string content = {};  // of a file that is made of what a GGUF file holds; empty: `from` is copied

  // Writes it into a folder, where nothing of its name may be. Throws FileError.
  void copy_to(const std::filesystem::path& folder) const;
  // Whether `file` holds the same.
  bool equals(const std::filesystem::path& file) const;
};
// All that the tokenizer at `path` is read from, with chat templates beside it ("additional_chat_templates/x.jinja"
// among them); of a folder also other forms of the tokenizer that it holds, for other programs. Throws FileError where
// there is none.
std::vector<TokenizerFile> tokenizer_files(const std::filesystem::path& path);

// By the name in a recipe: "byte", a path as for read_tokenizer, or "auto" (what the model's folder holds; without
// tokenizer files, bytes). Throws ConfigError where the model's vocabulary is too small for it.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::filesystem::path& model_folder,
                                          int64_t model_vocab);

}  // namespace weft
