// Instead of sentencepiece.cpp, in a build without SentencePiece.
#include "weft/base/not_built.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {

std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& file) {
  throw NotBuilt(fmt::format("{}: what reads SentencePiece models", file.string()), "SentencePiece",
                 "use the model's tokenizer.json, if it has one");
}

}  // namespace weft
