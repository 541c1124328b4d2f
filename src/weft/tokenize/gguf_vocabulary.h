// The vocabulary of a GGUF file: a tokenizer as llama.cpp has it. docs/formats/gguf.md
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/gguf/gguf_head.h"
#include "weft/gguf/gguf_header.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {

// A key of weft's own: the fingerprint of the tokenizer of which the file's vocabulary was made.
inline constexpr const char* kGgufFingerprint = "weft.tokenizer.fingerprint";

struct GgufVocabulary {
  enum Kind : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

  std::string model = {};  // "gpt2": byte pairs, "llama": SentencePiece's byte pairs; empty: there is no tokenizer
  std::string pre = {};    // of gpt2: how text is split, by llama.cpp's name
  std::vector<std::string> tokens = {};
  std::vector<int32_t> kinds = {};       // of each token
  std::vector<float> scores = {};        // of each token of "llama"
  std::vector<std::string> merges = {};  // of gpt2, "left right"
  int32_t beginning = -1, end = -1;      // ids; -1: none
  bool add_beginning = false, add_end = false;
  bool add_space_prefix = true;         // of "llama"
  std::string chat_template = {};       // empty: none
  std::string fingerprint = {};         // of the tokenizer that it was made of; empty: not known
  std::vector<std::string> notes = {};  // what the tokenizer does and a GGUF file cannot say, in words; not written
};

// Whether a file says that it holds a tokenizer, of whatever kind. Throws FileError where the key is no text.
bool has_gguf_vocabulary(const GgufFields& fields);
// Throws FileError, by key, where something is missing or does not fit together, or the tokenizer is of another kind.
GgufVocabulary read_gguf_vocabulary(const GgufFields& fields);
void write_gguf_vocabulary(const GgufVocabulary& vocabulary, GgufHead& head);

// The files by which a Hugging Face folder would hold this tokenizer: tokenizer.json or tokenizer.model first, then
// tokenizer_config.json, with contents. None where there is no tokenizer. `source` begins messages. Throws FileError.
std::vector<TokenizerFile> tokenizer_files_of(const GgufVocabulary& vocabulary, const std::string& source);

// The vocabulary of the tokenizer at `path` ("byte", or as read_tokenizer takes it), with unused tokens up to
// `vocab_size`, without chat template. Throws ConfigError, naming the tokenizer and what works, where llama.cpp has no
// name for what it does.
GgufVocabulary gguf_vocabulary_of(const std::filesystem::path& path, int64_t vocab_size);

// The expressions by which a text of gpt2's kind is split, one after the other; nothing for a name that weft does not
// know.
struct GgufSplit {
  std::vector<std::string> expressions;
  bool whole_first;  // a piece that is a token stays one, whatever its merges
  bool composes;     // NFC goes before: in its own tokenizer.json, not in llama.cpp
};
std::optional<GgufSplit> gguf_split(const std::string& pre);
// The name for these; empty: llama.cpp has none that weft knows.
std::string gguf_pre_of(const GgufSplit& split);

}  // namespace weft
