// What decoding keeps of the tokens that its texts have so far.
#pragma once
#include <vector>

#include "weft/nn/pass.h"

namespace weft {

// The cache of one layer, which says what the columns are: [rows of all pages, .] each.
struct KvCache {
  Tensor k, v;
};

// Consecutive tokens of a text in consecutive rows of the caches.
struct CachedRun {
  int64_t position = 0, count = 0, row = 0;
  int64_t end() const { return position + count; }
};

// What a pass does with the caches of all layers. The ranks of cp keep different tokens of each text.
struct CacheUse {
  // Rows of the pass whose keys are kept here, and where.
  struct Write {
    Run from;
    int64_t to;
  };
  std::vector<Write> writes;

  // Consecutive tokens of a text that look back, in consecutive rows of the pass. Where cp has several ranks, one
  // token, whose row each of them has.
  struct Query {
    Run rows;
    int64_t position;                                 // of the first
    int keeper;                                       // the rank of cp that keeps their own keys
    std::vector<const std::vector<CachedRun>*> runs;  // [rank of cp] what they keep of the text, these tokens included
  };
  // One for each run of rows, in the order of the rows; none where whole texts begin with this pass: their tokens then
  // see each other (MicroBatch::spans).
  std::vector<Query> queries;
  int rank = 0;  // of cp, here

  // For each text that this pass feeds to its end, the row of its last token; -1 where another rank of cp speaks for
  // it.
  std::vector<int64_t> ends;

  void write(Pass& p, const Tensor& rows, const Tensor& cache) const {
    for (const Write& w : writes)
      p.be.run(Copy{.from = rows.slice_rows(w.from.first, w.from.count), .to = cache.slice_rows(w.to, w.from.count)});
  }
};

}  // namespace weft
