// Gives the SentencePiece library's ids, faster and in less memory: time is linear in the text; extra memory does not
// grow with it, except for words of megabytes.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "weft/tokenize/best_path.h"
#include "weft/tokenize/byte_trie.h"
#include "weft/tokenize/merges.h"
#include "weft/tokenize/normalizers.h"
#include "weft/tokenize/piece_cache.h"
#include "weft/tokenize/sentencepiece_spec.h"

namespace weft {

// How a SentencePiece model normalizes a text before it looks for pieces.
// Characters by the model's map, spaces as '▁', one in front: the text that its library makes. Immutable.
class SentencePieceText {
 public:
  // Throws FileError, beginning with `source`, where the map of characters is broken.
  SentencePieceText(const SentencePieceSpec& spec, const std::string& source);

  // Linear in the text, which may be no UTF-8: each broken byte is U+FFFD then.
  std::string made_of(std::string_view text) const;
  // Pieces that stand for themselves wherever they are (user-defined symbols): with their ids.
  const ByteTrie& symbols() const { return symbols_; }

 private:
  // The replacement of the first `bytes` bytes of `text`.
  std::string_view first_part(std::string_view text, size_t& bytes) const;
  bool is_plain(char c) const { return uint8_t(c) < plain_.size() && plain_[uint8_t(c)]; }
  // The end of the characters from `at` on that stand for themselves.
  size_t end_of_plain(std::string_view text, size_t at) const;
  std::string_view without_spaces_before(std::string_view text) const;

  std::optional<CharacterMap> map_;
  ByteTrie symbols_;
  bool suffix_, prefix_, squeezes_;
  std::string_view space_;
  // Characters that stand for themselves if another of ASCII follows, or nothing.
  std::array<bool, 128> plain_{};
};

// Immutable; any thread may use it.
class SentencePieceEncoder {
 public:
  // False for models of whole words, for BPE with unused pieces, and for scores that are no numbers.
  static bool knows(const SentencePieceSpec& spec);
  // Takes a model that the sentencepiece library accepted. Throws FileError, beginning with `source`, if the model's
  // character map is broken.
  SentencePieceEncoder(const SentencePieceSpec& spec, const std::string& source);

  // What encoding needs besides: lent to one call at a time.
  struct Space {
    PieceCaches caches;
    BestPathSpace<float> path;
  };
  // The text in which pieces are looked for.
  std::string made_of(std::string_view text) const { return text_.made_of(text); }
  // Appends the ids of such a text, or of a part of it that ends where cut() says.
  void encode(std::string_view made, std::vector<int32_t>& ids, Space& space) const;
  // The first place after `from` where both parts have the ids of the whole, except that two unknown tokens that meet
  // there become one (joins()); the end of the text if none is known.
  size_t cut(std::string_view made, size_t from) const;
  bool joins(int32_t last, int32_t first) const { return last == unknown_ && first == unknown_; }

 private:
  void encode_likeliest(std::string_view made, std::vector<int32_t>& ids, Space& space) const;
  void encode_pairs(std::string_view made, std::vector<int32_t>& ids, Space& space) const;
  void merge(std::string_view word, std::vector<int32_t>& ids) const;
  void add_unknown(std::string_view characters, std::vector<int32_t>& ids, size_t begin) const;
  void read_likeliest(const SentencePieceSpec& spec);
  void read_pairs(const SentencePieceSpec& spec);
  int32_t add_character(std::string_view character);
  bool may_join(char32_t left, char32_t right) const;
  void let_join(char32_t left, char32_t right);
  bool is_unigram() const { return model_type_ == SentencePieceSpec::kUnigram; }

  int model_type_;
  SentencePieceText text_;
  int32_t unknown_ = -1;
  bool byte_fallback_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<std::string, int32_t> reserved_;  // ids of pieces that are not found in texts

  // --- a unigram model ---
  struct Score {
    float of_piece;
    bool user_defined;
  };
  ByteTrie pieces_;
  std::vector<Score> scores_;  // by id
  float unknown_score_ = 0, most_ = 0;

  // --- pairs: symbols are ids, and above them characters that are parts of pieces, but none themselves ---
  ByteTrie characters_;
  std::vector<std::string> more_characters_;
  int32_t num_pieces_ = 0;
  std::unordered_map<int32_t, int32_t> outputs_;  // of the few symbols that are another id
  MergeTable merges_{0};
  // Which characters stand side by side in some piece: others are never merged. '▁' counts as 128.
  std::array<std::array<bool, 129>, 129> few_join_{};
  std::unordered_set<uint64_t> join_;
};

}  // namespace weft
