// Which rows of one rank's caches hold which tokens of which text.
#pragma once
#include <vector>

#include "weft/nn/kv_cache.h"

namespace weft {

// Rows in pages, which texts take as they grow and give back when they end. Pages of a text lie one behind the other as
// long as others leave them free: attention reads a text run by run. All layers use the same rows.
class KvPages {
 public:
  static constexpr int64_t kRows = 64;  // of a page
  static int64_t pages_for(int64_t tokens) { return (tokens + kRows - 1) / kRows; }

  KvPages(int64_t num_pages, int64_t num_texts);
  // Asks others to leave pages free for so many tokens of a text that begins.
  void expect(int64_t text, int64_t tokens);
  // Takes rows for tokens [position, position + count) of a text, which come behind all that it has here: the runs that
  // they lie in, in order. A WEFT_CHECK where no page is free.
  std::vector<CachedRun> append(int64_t text, int64_t position, int64_t count);
  // Gives back the pages of a text.
  void forget(int64_t text);

  const std::vector<CachedRun>& runs(int64_t text) const { return texts_[size_t(text)].runs; }
  int64_t num_free() const;

 private:
  struct Text {
    std::vector<int64_t> pages;  // in the order they were taken
    std::vector<CachedRun> runs;
    int64_t rows = 0;  // in use
  };
  static constexpr int64_t kNobody = -1;
  struct Page {
    int64_t text = kNobody;    // that has it
    int64_t wanted = kNobody;  // the text that others leave it to
  };
  int64_t take(int64_t text);
  int64_t page_for(int64_t text) const;
  std::vector<Page> pages_;
  std::vector<Text> texts_;
};

}  // namespace weft
