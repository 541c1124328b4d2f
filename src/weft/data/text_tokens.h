// Text and JSONL as token files: tokenized once, kept beside the text (docs/formats/token_files.md).
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "weft/tokenize/tokenizer.h"

namespace weft {

// Readers of file kinds that this folder does not know, supplied by folders above it.
struct DocumentFiles {
  std::function<bool(const std::filesystem::path& file, const std::string& text_key)> reads = {};
  // Hands over each document, and the fraction of the file that is done. Throws FileError.
  std::function<void(const std::filesystem::path& file, const std::string& text_key,
                     const std::function<void(std::string_view document, double done)>& take)>
      for_each = {};
};

struct TextRequest {
  std::filesystem::path text;
  const Tokenizer& tokenizer;
  std::string text_key = "text";         // of rows: a document is the string under this key of each
  std::filesystem::path cache_dir = {};  // where ids go if the text's folder cannot be written; empty: that is an error
  int num_threads = 1;
  DocumentFiles more = {};                         // what is read by it; all else is text or JSON lines
  std::function<void(double done)> progress = {};  // called with the fraction of the text that is done
};

// Finds the Megatron pair TEXT.<tokenizer>.bin and .idx if it was made of this text (same size, time, content and key),
// beside it or in cache_dir, else makes it, in bounded memory where the tokenizer knows where a text may be cut:
// written to temporary names, synced, renamed; a TEXT.<tokenizer>.json beside it says of what. A text file is one
// document, each followed by the tokenizer's end of document. Returns the .bin file. Throws FileError: for an empty
// text, what looks binary, a broken line of JSONL with its number.
std::filesystem::path tokenize_once(const TextRequest& request);
// The same where the pair is there; none where it would have to be made.
std::optional<std::filesystem::path> find_tokenized(const TextRequest& request);

}  // namespace weft
