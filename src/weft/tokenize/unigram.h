// The likeliest way to write a piece as tokens, each with its own probability.       Kudo 2018, "Subword
// regularization"
#pragma once
#include <array>

#include "weft/tokenize/model.h"

namespace weft {

class Unigram final : public TokenModel {
 public:
  struct Spec {
    Vocabulary vocabulary;
    std::vector<double> scores;  // log probabilities, by id
    int32_t unknown = -1;        // -1: there must be a token for everything
    bool byte_fallback = false;
  };
  explicit Unigram(Spec spec);

  const Vocabulary& vocabulary() const override { return spec_.vocabulary; }
  // Throws Error where there is no token and no unknown one. Linear in the piece.
  void encode(std::string_view piece, std::vector<int32_t>& ids, EncodeSpace& space) const override;

 private:
  void find_path(std::string_view piece, std::vector<int32_t>& ids, EncodeSpace& space) const;
  void add_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  Spec spec_;
  double unknown_score_;
  std::array<int32_t, 256> byte_ids_;
  ByteTrie tokens_;
};

// Words as their longest beginnings, one after the other (WordPiece), or whole (WordLevel).

// A word of which any part has no token is the unknown token.                          Wu et al. 2016; Devlin et al.
// 2019
class WordPiece final : public TokenModel {
 public:
  struct Spec {
    Vocabulary vocabulary;
    int32_t unknown = -1;
    std::string later_prefix = "##";  // of a word's parts but the first
    int64_t max_characters = 100;     // longer words are unknown
    bool whole = false;               // WordLevel: a word is a token or unknown
  };
  explicit WordPiece(Spec spec) : spec_(std::move(spec)) {}

  const Vocabulary& vocabulary() const override { return spec_.vocabulary; }
  void encode(std::string_view piece, std::vector<int32_t>& ids, EncodeSpace& space) const override;

 private:
  void find_parts(std::string_view word, std::vector<int32_t>& ids) const;

  Spec spec_;
};

}  // namespace weft
