// Writes a SentencePiece model file.
#pragma once
#include <cstdint>
#include <string>

#include "weft/tokenize/sentencepiece_spec.h"

namespace weft {

// The bytes of a model with this specification, whose character map must be empty (its library then changes no text but
// for spaces), and these tokens that begin and end a text (-1: none).
std::string write_sentencepiece(const SentencePieceSpec& spec, int32_t beginning, int32_t end);

}  // namespace weft
