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

}  // namespace weft
