// Byte-pair encoding of pieces: over bytes, or over characters with their bytes as the way out.
#pragma once
#include <array>

#include "weft/tokenize/merges.h"
#include "weft/tokenize/model.h"

namespace weft {

class Bpe final : public TokenModel {
 public:
  struct Spec {
    Vocabulary vocabulary;
    MergeTable merges;
    bool bytes = false;              // pieces are bytes, each a token; else characters
    bool whole_first = false;        // a piece that is a token is not taken apart ("ignore_merges")
    bool byte_fallback = false;      // a character without a token becomes its bytes' tokens, "<0xE2>"
    int32_t unknown = -1;            // for what has no token; -1: it is left out
    bool fuse_unknown = false;       // several in a row are one
    std::string later_prefix;        // of a word's characters but the first ("continuing_subword_prefix")
    std::string last_suffix;         // of a word's last character ("end_of_word_suffix")
    bool cut_before_blanks = false;  // no merge reaches over a '▁' that follows another character: words are alone
  };
  explicit Bpe(Spec spec);

  const Vocabulary& vocabulary() const override { return spec_.vocabulary; }
  void encode(std::string_view piece, std::vector<int32_t>& ids, EncodeSpace& space) const override;
  bool of_bytes() const override { return spec_.bytes; }

 private:
  void encode_word(std::string_view word, std::vector<int32_t>& ids, EncodeSpace& space) const;
  void merge_word(std::string_view word, std::vector<int32_t>& ids) const;
  void add_symbols(std::string_view word, std::vector<int32_t>& ids) const;
  void add_characters(std::string_view word, std::vector<int32_t>& ids) const;
  bool add_fallback(std::string_view symbol, std::vector<int32_t>& ids) const;

  Spec spec_;
  std::array<int32_t, 256> byte_ids_;  // of "a" in bytes, of "<0x61>" in characters
};

inline constexpr std::string_view kBlank = "\xe2\x96\x81";  // '▁', for a space

}  // namespace weft
