// Which tokens of which texts the ranks of cp keep, and the rows of passes that add to them.
#pragma once
#include <span>
#include <vector>

#include "weft/sharding/sequence_cut.h"
#include "weft/step/kv_pages.h"

namespace weft {

// The rows of one pass, on one rank.
struct DecodingRows {
  std::vector<int32_t> ids, positions;
  SequenceCut sequences;             // of texts that begin, one behind the other
  std::vector<AttentionSpan> spans;  // those texts
  CacheUse use;
};

// The books of all ranks, which each of them keeps alike. Tokens that texts begin with stay on the ranks that compute
// them; those that follow are dealt out page by page.
class CacheBooks {
 public:
  // `num_pages` on each rank of cp.
  CacheBooks(RankOf cp, int64_t num_pages, int64_t num_texts);

  struct Beginning {
    int64_t text;
    std::span<const int32_t> ids;
    int64_t expected;  // tokens that the text will have, these included
  };
  // All in one pass: the texts, one behind the other, are cut like one sequence, which is filled up to equal runs.
  DecodingRows begin(std::span<const Beginning> texts);
  // Asks that so many tokens of a text that begins may lie behind each other.
  void expect(int64_t text, int64_t tokens);
  struct Next {
    int64_t text, position;        // of the first token
    std::span<const int32_t> ids;  // on one rank of cp any number; on several one, which is then whole on every rank
    bool ends = true;              // whether somebody asks what comes behind them
  };
  // The tokens that follow, of some texts. What the rows refer to stays valid until the next call.
  DecodingRows next(std::span<const Next> texts);
  // For a dry run: as if the tokens [first, end) of a text had followed, one by one.
  void pass_over(int64_t text, int64_t first, int64_t end);
  void forget(int64_t text);

  // Tokens of the sequence that such texts together are.
  static int64_t filled(int64_t tokens, int64_t ranks) {
    const int64_t runs = ranks > 1 ? 2 * ranks : 1;
    return (tokens + runs - 1) / runs * runs;
  }
  int64_t kept(int64_t text, int64_t rank) const;  // tokens

 private:
  int keeper_of(int64_t position) const { return int(position / KvPages::kRows % cp_.size); }
  RankOf cp_;
  std::vector<KvPages> ranks_;
};

}  // namespace weft
