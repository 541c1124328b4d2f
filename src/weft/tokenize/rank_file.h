// tiktoken's files of ranks: "base64 rank", a token a line.
#pragma once
#include <memory>

#include "weft/tokenize/companions.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/tokenize/unicode.h"

namespace weft {

// Whether a file's content begins like one.
bool is_rank_file(std::string_view content);

struct RankFile {
  std::string_view content;
  std::string name;     // of the file: it may tell the pattern
  std::string pattern;  // r50k, cl100k, o200k, llama3, qwen2; empty: by the name, or by the number of ranks
  std::string source, fingerprint;
  std::shared_ptr<const CharacterTable> table;
};
// Throws FileError where a line is broken, a byte has no token, or a rank is given twice; ConfigError where the pattern
// is neither given nor known.
std::unique_ptr<Tokenizer> read_rank_file(const RankFile& file, const Companions& companions);

}  // namespace weft
