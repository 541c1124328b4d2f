// Any bytes as the files of a tokenizer before tokenizer.json was: GPT-2's vocabulary and merges, or BERT's vocab.txt.
// Refused with an Error that names them, or a tokenizer whose ids are within its vocabulary.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/tokenize/tokenizer_json.h"
#include "weft/tokenize/vocabulary_files.h"

namespace {

// Up to a NUL, which is taken too.
std::string_view take(std::string_view& rest) {
  const std::string_view part = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  return part;
}

nlohmann::json tokenizer_json(bool of_bert, std::string_view& rest) {
  const std::string_view vocabulary = take(rest);
  if (of_bert) return weft::vocabulary_as_tokenizer_json(vocabulary, "fuzz", {});
  const std::string_view merges = take(rest);
  return weft::as_tokenizer_json(weft::parse_json(vocabulary, "fuzz", weft::kTokenizerJson), merges, "fuzz", {});
}

}  // namespace

// The first byte chooses the kind; then the files, each up to a NUL; then the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  static const auto table = weft::make_character_table();
  std::unique_ptr<weft::Tokenizer> tokenizer;
  try {
    tokenizer = weft::read_tokenizer_json(tokenizer_json(data[0] % 2 == 1, rest), {"fuzz", "fuzz", table}, {});
  } catch (const weft::Error& e) {
    if (!std::string_view(e.what()).starts_with("fuzz")) std::abort();
    return 0;
  }
  try {
    std::vector<int32_t> ids;
    tokenizer->encode(rest, ids, weft::SpecialText::kParsed);
    for (const int32_t id : ids)
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
    tokenizer->decode(ids, weft::Tokenizer::Specials::kShown);
  } catch (const weft::Error&) {  // a word without a token, an expression that gives up
  }
  return 0;
}
