// '▁' for spaces, as SentencePiece has it.
#pragma once
#include "weft/tokenize/component.h"
#include "weft/tokenize/pre_tokenizers.h"

namespace weft {

struct Metaspace {
  enum class Prefix { kAlways, kFirst, kNever };
  std::string mark;  // that stands for a space
  Prefix prefix;     // which pieces get one in front
  bool split;        // before each mark
};
// `c` is a pre-tokenizer or a decoder.
Metaspace read_metaspace(const Component& c);
PreTokenizer metaspace_step(Metaspace metaspace);

}  // namespace weft
