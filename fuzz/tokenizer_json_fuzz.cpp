// Any bytes as a tokenizer.json: refused with an Error that names it, or a tokenizer whose ids are within its
// vocabulary for any text, the same once more, and for a text cut where it says.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/tokenize/tokenizer_json.h"

namespace {

void encode(const weft::Tokenizer& tokenizer, std::string_view text) {
  for (const auto special : {weft::SpecialText::kText, weft::SpecialText::kParsed}) {
    std::vector<int32_t> ids, again;
    tokenizer.encode(text, ids, special);
    for (int32_t id : ids)
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    const size_t cut = tokenizer.cut_between(text, 0, text.size() / 2);
    tokenizer.encode(text.substr(0, cut), again, special);
    tokenizer.encode(text.substr(cut), again, special);
    if (ids != again) std::abort();
    tokenizer.decode(ids, weft::Tokenizer::Specials::kShown);
  }
}

}  // namespace

// The last bytes, after a NUL, are the text; without one, the JSON itself is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::string_view json = all.substr(0, all.find('\0'));
  const std::string_view text = json.size() < size ? all.substr(json.size() + 1) : all;
  static const auto table = weft::make_character_table();
  std::unique_ptr<weft::Tokenizer> tokenizer;
  try {
    tokenizer =
        weft::read_tokenizer_json(weft::parse_json(json, "fuzz", weft::kTokenizerJson), {"fuzz", "fuzz", table}, {});
  } catch (const weft::Error& e) {
    if (!std::string_view(e.what()).starts_with("fuzz: ")) std::abort();
    return 0;
  }
  try {
    encode(*tokenizer, text);
  } catch (const weft::Error&) {  // a word without a token, an expression that gives up
  }
  return 0;
}
