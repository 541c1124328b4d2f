// tiktoken's files of ranks: "base64 rank", a token a line.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "weft/tokenize/companions.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/tokenize/unicode.h"

namespace weft {

// Base64, as rank files and character maps are written.                                    RFC 4648, section 4

// Throws FileError, beginning with `source`, where it is not base64.
std::string from_base64(std::string_view text, const std::string& source);

// Calls take(line, number) for each line, numbers from 1; line feeds, also with a carriage return before, belong to
// none. Throws FileError that begins with `source` and names the line that is not UTF-8.
void for_each_text_line(std::string_view text, const std::string& source,
                        const std::function<void(std::string_view line, int64_t number)>& take);

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
