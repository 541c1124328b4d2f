#include "weft/step/kv_pages.h"

#include <algorithm>

namespace weft {

KvPages::KvPages(int64_t num_pages, int64_t num_texts) : pages_(size_t(num_pages)), texts_(size_t(num_texts)) {}

void KvPages::expect(int64_t text, int64_t tokens) {
  const auto n = pages_for(tokens);
  const auto is_open = [](const Page& p) { return p.text == kNobody && p.wanted == kNobody; };
  const auto first = std::search_n(pages_.begin(), pages_.end(), n, true,
                                   [&](const Page& p, bool open) { return is_open(p) == open; });
  if (first == pages_.end()) return;
  std::for_each(first, first + n, [&](Page& p) { p.wanted = text; });
}

int64_t KvPages::take(int64_t text) {
  const int64_t page = page_for(text);
  WEFT_CHECK(page >= 0, "no page is free for text {}", text);
  pages_[size_t(page)].text = text;
  return page;
}

// The page behind the text's last, else one that is left to it, else one that nobody wants, else any; -1: none is free.
int64_t KvPages::page_for(int64_t text) const {
  const auto num_pages = int64_t(pages_.size());
  const auto is_free = [&](int64_t i) { return i < num_pages && pages_[size_t(i)].text == kNobody; };
  const std::vector<int64_t>& has = texts_[size_t(text)].pages;
  if (!has.empty() && is_free(has.back() + 1)) return has.back() + 1;
  const auto cost = [&](int64_t i) {
    const int64_t wanted = pages_[size_t(i)].wanted;
    return wanted == text ? 0 : wanted == kNobody ? 1 : 2;
  };
  int64_t best = -1;
  for (int64_t i = 0; i < num_pages && (best < 0 || cost(best) > 0); ++i)
    if (is_free(i) && (best < 0 || cost(i) < cost(best))) best = i;
  return best;
}

std::vector<CachedRun> KvPages::append(int64_t text, int64_t position, int64_t count) {
  Text& t = texts_[size_t(text)];
  WEFT_CHECK(t.runs.empty() || t.runs.back().end() <= position, "token {} of text {} comes before those it has",
             position, text);
  std::vector<CachedRun> added;
  while (count > 0) {
    const int64_t within = t.rows % kRows;
    if (within == 0) t.pages.push_back(take(text));
    const CachedRun run{position, std::min(count, kRows - within), t.pages.back() * kRows + within};
    added.push_back(run);
    if (!t.runs.empty() && t.runs.back().end() == run.position && t.runs.back().row + t.runs.back().count == run.row)
      t.runs.back().count += run.count;
    else
      t.runs.push_back(run);
    t.rows += run.count, position += run.count, count -= run.count;
  }
  return added;
}

void KvPages::forget(int64_t text) {
  for (Page& p : pages_) {
    if (p.text == text) p.text = kNobody;
    if (p.wanted == text) p.wanted = kNobody;
  }
  texts_[size_t(text)] = {};
}

int64_t KvPages::num_free() const {
  return std::count_if(pages_.begin(), pages_.end(), [](const Page& p) { return p.text == kNobody; });
}

}  // namespace weft
