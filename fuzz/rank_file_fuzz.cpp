// Any bytes behind those of a small rank file: refused with an Error that names it, or a tokenizer that gives back
// every text that is UTF-8.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "weft/base/error.h"
#include "weft/base/utf8.h"
#include "weft/tokenize/rank_file.h"

namespace {

std::string all_bytes() {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string file;
  for (int b = 0; b < 256; ++b) file += fmt::format("{}{}== {}\n", kDigits[b >> 2], kDigits[(b & 3) << 4], b);
  return file;
}

}  // namespace

// The first byte chooses the pattern; what follows a NUL is the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const char* patterns[] = {"r50k", "cl100k", "o200k", "llama3", "qwen2"};
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view lines = all.substr(0, all.find('\0'));
  const std::string_view text = lines.size() < all.size() ? all.substr(lines.size() + 1) : all;
  const std::string file = all_bytes() + std::string(lines);
  static const auto table = weft::make_character_table();
  try {
    const auto tokenizer = weft::read_rank_file({.content = file,
                                                 .name = "f",
                                                 .pattern = patterns[data[0] % 5],
                                                 .source = "fuzz",
                                                 .fingerprint = "fuzz",
                                                 .table = table},
                                                {});
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    const bool same = tokenizer->decode(ids, weft::Tokenizer::Specials::kShown) == text;
    const bool composed = data[0] % 5 == 4;
    if (!same && !composed && weft::utf8_error(text) == std::string_view::npos) std::abort();
  } catch (const weft::Error& e) {
    if (!std::string_view(e.what()).starts_with("fuzz: ")) std::abort();
  }
  return 0;
}
