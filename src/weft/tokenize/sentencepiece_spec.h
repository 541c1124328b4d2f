// Reads a SentencePiece model file.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Pieces, TrainerSpec and NormalizerSpec of sentencepiece_model.proto, with its defaults. Texts are borrowed from the
// model's bytes.
struct SentencePieceSpec {
  enum class Kind { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string_view text{};
    float score = 0;
    Kind kind = Kind::kNormal;
    // Whether the piece is found in texts; the other kinds never are.
    bool is_in_texts() const { return kind == Kind::kNormal || kind == Kind::kUserDefined || kind == Kind::kUnused; }
  };
  enum Model { kUnigram = 1, kBpe, kWords, kCharacters };

  std::vector<Piece> pieces;  // by id
  int model_type = kUnigram;
  bool byte_fallback = false, spaces_are_suffixes = false;
  std::string_view character_map;  // empty: none
  bool adds_dummy_prefix = true, removes_extra_spaces = true, escapes_spaces = true;
  bool whole = false;  // all of it could be read
};

// Takes any bytes: `whole` is false if they are broken.
SentencePieceSpec read_sentencepiece_spec(std::string_view model);

class Tokenizer;
struct Companions;
// The tokenizer of a model's bytes; see open_sentencepiece. `source` begins messages.
std::unique_ptr<Tokenizer> make_sentencepiece(std::string_view model, const std::string& source,
                                              const Companions& companions);

}  // namespace weft
