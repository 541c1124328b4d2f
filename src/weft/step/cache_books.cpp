#include "weft/step/cache_books.h"

#include <algorithm>
#include <numeric>

#include "weft/sharding/flat_layout.h"

namespace weft {

CacheBooks::CacheBooks(RankOf cp, int64_t num_pages, int64_t num_texts)
    : cp_(cp), ranks_(size_t(cp.size), KvPages(num_pages, num_texts)) {}

namespace {

// Whole texts, one behind the other, before ranks cut them.
struct Joined {
  std::vector<int32_t> ids, positions;
  std::vector<AttentionSpan> spans;
  void add(std::span<const int32_t> text) {
    const auto first = int64_t(ids.size()), n = int64_t(text.size());
    spans.push_back({.q_row = first, .q_count = n, .k_row = first, .k_count = n});
    ids.insert(ids.end(), text.begin(), text.end());
    positions.resize(ids.size());
    std::iota(positions.begin() + first, positions.end(), 0);
  }
};

}  // namespace

DecodingRows CacheBooks::begin(std::span<const Beginning> texts) {
  Joined whole;
  for (const Beginning& t : texts) whole.add(t.ids);
  const int64_t filled_up = filled(int64_t(whole.ids.size()), cp_.size) - int64_t(whole.ids.size());
  if (filled_up > 0) whole.add(std::vector<int32_t>(size_t(filled_up), 0));
  DecodingRows rows{
      .ids = {}, .positions = {}, .sequences = {int64_t(whole.ids.size()), cp_}, .spans = whole.spans, .use = {}};
  rows.use.rank = int(cp_.rank);
  rows.use.ends.assign(texts.size(), -1);
  for (const Beginning& t : texts) expect(t.text, t.expected);
  for (int64_t rank = 0; rank < cp_.size; ++rank) {
    int64_t row = 0;  // of the run's first token, there
    for (const Run& run : rows.sequences.runs_of(rank)) {
      for (size_t i = 0; i < texts.size(); ++i) {
        const Run text{whole.spans[i].q_row, whole.spans[i].q_count}, here = overlap(run, text);
        if (here.count == 0) continue;
        int64_t from = row + here.first - run.first;
        for (const CachedRun& kept : ranks_[size_t(rank)].append(texts[i].text, here.first - text.first, here.count)) {
          if (rank == cp_.rank) rows.use.writes.push_back({{from, kept.count}, kept.row});
          from += kept.count;
        }
        if (rank == cp_.rank && here.end() == text.end()) rows.use.ends[i] = from - 1;
      }
      row += run.count;
    }
  }
  for (const Run& run : rows.sequences.runs()) {
    rows.ids.insert(rows.ids.end(), whole.ids.begin() + run.first, whole.ids.begin() + run.end());
    rows.positions.insert(rows.positions.end(), whole.positions.begin() + run.first,
                          whole.positions.begin() + run.end());
  }
  return rows;
}

void CacheBooks::expect(int64_t text, int64_t tokens) {
  for (KvPages& rank : ranks_) rank.expect(text, (tokens + cp_.size - 1) / cp_.size);
}

DecodingRows CacheBooks::next(std::span<const Next> texts) {
  DecodingRows rows;
  rows.use.rank = int(cp_.rank);
  for (const Next& t : texts) {
    const Run here{int64_t(rows.ids.size()), int64_t(t.ids.size())};
    WEFT_CHECK(here.count == 1 || cp_.size == 1, "{} tokens of a text on {} ranks of cp", here.count, cp_.size);
    const int keeper = keeper_of(t.position);
    const bool keeps = keeper == cp_.rank;
    int64_t from = here.first;
    for (const CachedRun& kept : ranks_[size_t(keeper)].append(t.text, t.position, here.count)) {
      if (keeps) rows.use.writes.push_back({{from, kept.count}, kept.row});
      from += kept.count;
    }
    rows.ids.insert(rows.ids.end(), t.ids.begin(), t.ids.end());
    for (int64_t i = 0; i < here.count; ++i) rows.positions.push_back(int32_t(t.position + i));
    if (t.ends) rows.use.ends.push_back(keeps ? here.end() - 1 : -1);
    CacheUse::Query query{.rows = here, .position = t.position, .keeper = keeper, .runs = {}};
    for (const KvPages& rank : ranks_) query.runs.push_back(&rank.runs(t.text));
    rows.use.queries.push_back(std::move(query));
  }
  rows.sequences = {.seq_length = int64_t(rows.ids.size())};
  return rows;
}

void CacheBooks::pass_over(int64_t text, int64_t first, int64_t end) {
  for (int64_t page_end; first < end; first = page_end) {
    page_end = std::min(end, (first / KvPages::kRows + 1) * KvPages::kRows);
    ranks_[size_t(keeper_of(first))].append(text, first, page_end - first);
  }
}

void CacheBooks::forget(int64_t text) {
  for (KvPages& rank : ranks_) rank.forget(text);
}

int64_t CacheBooks::kept(int64_t text, int64_t rank) const {
  const auto& runs = ranks_[size_t(rank)].runs(text);
  return std::accumulate(runs.begin(), runs.end(), int64_t{0},
                         [](int64_t n, const CachedRun& r) { return n + r.count; });
}

}  // namespace weft
