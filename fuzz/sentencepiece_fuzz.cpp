// Any bytes as a SentencePiece model: refused with an Error that names its file, or a tokenizer whose ids are within
// its vocabulary, the same once more. The first byte says how many of what follows are the text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "memory_file.h"
#include "weft/base/error.h"
#include "weft/tokenize/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view text = all.substr(0, data[0]);
  const MemoryFile file(all.substr(text.size()));
  std::unique_ptr<weft::Tokenizer> tokenizer;
  try {
    tokenizer = weft::open_sentencepiece(file.path());
  } catch (const weft::Error& e) {
    if (!std::string_view(e.what()).starts_with(file.path())) std::abort();
    return 0;
  }
  for (const auto special : {weft::SpecialText::kText, weft::SpecialText::kParsed}) {
    try {
      std::vector<int32_t> ids, again;
      tokenizer->encode(text, ids, special);
      tokenizer->encode(text, again, special);
      if (ids != again) std::abort();
      for (const int32_t id : ids)
        if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
      tokenizer->decode(ids, weft::Tokenizer::Specials::kShown);
    } catch (const weft::Error&) {}  // the library's own refusal
  }
  return 0;
}
