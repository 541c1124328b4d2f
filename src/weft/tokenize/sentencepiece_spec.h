// What a SentencePiece model says of itself that its library does not tell.
#pragma once
#include <string_view>

namespace weft {

// Of sentencepiece_model.proto: TrainerSpec and NormalizerSpec, with the defaults there.
struct SentencePieceSpec {
  int model_type = 1;  // 1 unigram, 2 BPE, 3 words, 4 characters
  bool maps_characters = false;
  bool adds_dummy_prefix = true, escapes_spaces = true, spaces_are_suffixes = false;
  bool whole = false;  // all of it could be read
};

// Of any bytes: `whole` is false where they are broken.
SentencePieceSpec read_sentencepiece_spec(std::string_view model);

}  // namespace weft
