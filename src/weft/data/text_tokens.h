// Text and JSONL as token files: tokenized once, kept beside the text (docs/formats/token_files.md).
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "weft/tokenize/tokenizer.h"

namespace weft {

struct TextRequest {
  std::filesystem::path text;
  const Tokenizer& tokenizer;
  std::string text_key = "text";         // of JSONL: a document is the string under this key of each line
  std::filesystem::path cache_dir = {};  // where ids go if the text's folder cannot be written; empty: that is an error
  int num_threads = 1;
  std::function<void(double done)> progress = {};  // called with the fraction of the text that is done
};

// Finds the Megatron pair TEXT.<tokenizer>.bin and .idx if it was made of this text (same size, time, content and key),
// beside it or in cache_dir, else makes it, in bounded memory where the tokenizer knows where a text may be cut:
// written to temporary names, synced, renamed; a TEXT.<tokenizer>.json beside it says of what. A text file is one
// document, each followed by the tokenizer's end of document. Returns the .bin file. Throws FileError: for an empty
// text, what looks binary, a broken line of JSONL with its number.
std::filesystem::path tokenize_once(const TextRequest& request);

}  // namespace weft
