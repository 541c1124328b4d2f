// Instead of sentencepiece.cpp, in a build without SentencePiece.
#include "weft/base/not_built.h"
#include "weft/tokenize/companions.h"
#include "weft/tokenize/sentencepiece_spec.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {

std::unique_ptr<Tokenizer> make_sentencepiece(std::string_view, const std::string& source, const Companions&) {
  throw NotBuilt(fmt::format("{}: what reads SentencePiece models", source), "SentencePiece",
                 "use the model's tokenizer.json, if it has one");
}

}  // namespace weft
