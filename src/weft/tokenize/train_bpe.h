// Learning a byte-level BPE tokenizer from text.                                       Sennrich et al. 2016, algorithm
// 1
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/json.h"
#include "weft/tokenize/added_tokens.h"
#include "weft/tokenize/splitter.h"

namespace weft {

// How often each piece of a corpus stands in it. Memory grows with the number of different pieces.
class PieceCounts {
 public:
  // Special tokens are no text: documents are split at them.
  PieceCounts(Splitter::Rules rules, std::vector<std::string> specials);

  // Counts a document on up to num_threads threads; the counts do not depend on how many.
  void add(std::string_view document, int num_threads);

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view piece) const { return std::hash<std::string_view>()(piece); }
  };
  using Map = std::unordered_map<std::string, int64_t, Hash, std::equal_to<>>;
  const Map& counts() const { return counts_; }
  int64_t bytes() const { return bytes_; }  // of all documents

 private:
  void count(std::string_view text, Map& counts) const;

  Splitter splitter_;
  AddedTokenFinder specials_;
  Map counts_;
  int64_t bytes_ = 0;
};

// What was learned: merges as their bytes, the most frequent first.
struct LearnedMerges {
  struct Merge {
    std::string left, right;
  };
  std::vector<Merge> merges;
};

// Merges the most frequent pair, of equally frequent ones the greatest (by the bytes of its left token, then of its
// right one), until there are `num_tokens` tokens beside the bytes or nothing is left to merge. `progress` hears of
// each thousandth merge.
LearnedMerges learn_merges(const PieceCounts& pieces, int64_t num_tokens,
                           const std::function<void(int64_t done)>& progress);

// The tokenizer.json: special tokens first, then the bytes in the order of their characters, then the merges' tokens.
nlohmann::json learned_tokenizer(const LearnedMerges& learned, Splitter::Rules rules,
                                 const std::vector<std::string>& specials);

}  // namespace weft
