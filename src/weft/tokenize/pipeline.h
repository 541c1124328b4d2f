// A tokenizer put together from its steps: added tokens, normalizers, pre-tokenizers, a model, decoders.
#pragma once
#include <memory>

#include "weft/tokenize/added_tokens.h"
#include "weft/tokenize/decoders.h"
#include "weft/tokenize/model.h"
#include "weft/tokenize/normalizers.h"
#include "weft/tokenize/pre_tokenizers.h"
#include "weft/tokenize/spares.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {

class PipelineTokenizer final : public Tokenizer {
 public:
  struct Parts {
    std::shared_ptr<const CharacterTable> table;
    std::vector<AddedToken> added;
    std::vector<Normalizer> normalizers;
    bool only_nfc = false;  // the normalizers are NFC and no other
    PreTokenizers pre_tokenizers;
    std::unique_ptr<TokenModel> model;
    Decoders decoders;
    std::vector<int32_t> beginning, ending;
    int32_t end_of_document = -1;
    std::string fingerprint;
  };
  explicit PipelineTokenizer(Parts parts);

  int64_t vocab_size() const override { return vocab_size_; }
  int32_t end_of_document() const override { return parts_.end_of_document; }
  std::vector<int32_t> beginning() const override { return parts_.beginning; }
  std::vector<int32_t> ending() const override { return parts_.ending; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) const override;
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special, int num_threads) const override;
  size_t cut_between(std::string_view text, size_t from, size_t to) const override;
  std::string decode(std::span<const int32_t> ids, Specials specials) const override;
  std::string fingerprint() const override { return parts_.fingerprint; }

 private:
  // What a worker needs.
  struct Space {
    EncodeSpace model;
    Pieces pieces;
  };
  // A call of encode(): where its ids go.
  struct Call {
    SpecialText special;
    int num_threads;
    std::vector<int32_t>& ids;
    Space& space;
  };
  void encode_whole(std::string_view text, const Call& call) const;
  // The parts of a text between added tokens; `first`: the document begins with it.
  void encode_part(std::string_view text, bool first, const Call& call) const;
  void encode_normal(std::string_view text, bool first, const Call& call) const;
  // The pieces that the first step made, on several threads: the other steps and the model see each alone.
  void share_out(std::span<const TextPiece> pieces, const Call& call) const;
  // From pieces to ids, from a step of the pre-tokenizers on.
  void finish(size_t step, std::span<const TextPiece> pieces, std::vector<int32_t>& ids, Space& space) const;
  std::string token_text(int32_t id) const;
  const AddedToken* added(int32_t id) const;

  Parts parts_;
  int64_t vocab_size_ = 0;
  AddedTokenFinder in_text_, in_normal_;
  std::vector<AddedToken> by_id_;  // sorted
  bool may_cut_ = false;
  Spares<Space> spaces_;
};

}  // namespace weft
