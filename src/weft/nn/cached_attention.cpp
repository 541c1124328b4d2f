#include "weft/nn/cached_attention.h"

#include <algorithm>

#include "weft/sharding/text_ranks.h"

namespace weft {
namespace {

using Saved = AttentionCore::Saved;

// What the tokens from `position` to `last` of a text see of each run, the last run first; runs of which they see
// nothing are left out.
std::vector<CachedRun> seen(const std::vector<CachedRun>& runs, int64_t position, int64_t last, int64_t window) {
  std::vector<CachedRun> all;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const int64_t first = window > 0 ? std::max(run->position, position - window + 1) : run->position;
    const int64_t end = std::min(run->end(), last + 1);
    if (first < end) all.push_back({first, end - first, run->row + first - run->position});
  }
  return all;
}
bool sees_any(const CacheUse::Query& query, int rank, int64_t window) {
  const int64_t last = query.position + query.rows.count - 1;
  return !seen(*query.runs[size_t(rank)], query.position, last, window).empty();
}

// Rows of a query each of which sees some keys of the same runs.
struct AlikeRows {
  Run rows;
  int64_t position;             // of the first
  std::vector<CachedRun> seen;  // by any of them, the last run first
};

// A query is cut where a run comes into sight, and where the window leaves one behind.
std::vector<AlikeRows> alike_rows(const CacheUse::Query& query, int rank, int64_t window) {
  const std::vector<CachedRun>& runs = *query.runs[size_t(rank)];
  const int64_t begin = query.position, end = begin + query.rows.count;
  std::vector<int64_t> cuts{begin, end};
  for (const CachedRun& run : runs)
    for (const int64_t cut : {run.position, window > 0 ? run.end() + window - 1 : end})
      if (begin < cut && cut < end) cuts.push_back(cut);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<AlikeRows> all;
  for (size_t i = 0; i + 1 < cuts.size(); ++i)
    all.push_back({.rows = {query.rows.first + cuts[i] - begin, cuts[i + 1] - cuts[i]},
                   .position = cuts[i],
                   .seen = seen(runs, cuts[i], cuts[i + 1] - 1, window)});
  return all;
}

// f(rows, elements) for the longest runs of elements for which `has` holds. Elements say which rows they are about, and
// follow each other without gaps.
template <class T, class Has, class F>
void for_rows(const std::vector<T>& all, const Has& has, const F& f) {
  for (size_t first = 0, end; first < all.size(); first = end + 1) {
    for (end = first; end < all.size() && has(all[end]);) ++end;
    if (end == first) continue;
    const int64_t row = all[first].rows.first;
    f(Run{row, all[end - 1].rows.end() - row}, std::span(all).subspan(first, end - first));
  }
}

// Sums over keys as they grow: in stat, beside their log-sum-exp.
class Sums {
 public:
  Sums(Pass& p, const Saved& out)
      : p_(p), out_(out), widens_(out.o.dtype != out.lse.dtype), sum_(widens_ ? stat(out.o) : out.o) {}
  // The first part of these rows' keys, which lies in `out` already.
  void begin(const Run& rows) {
    if (widens_) p_.be.run(Copy{.from = of(out_.o, rows), .to = of(sum_, rows)});
  }
  void add(const Run& rows, const Tensor& o, const Tensor& lse) {
    p_.be.run(AttentionMerge{.o = o, .lse = lse, .sum = of(sum_, rows), .sum_lse = of(out_.lse, rows)});
  }
  void end(const Run& rows) {
    if (widens_) p_.be.run(Copy{.from = of(sum_, rows), .to = of(out_.o, rows)});
  }
  static Tensor of(const Tensor& x, const Run& rows) { return x.slice_rows(rows.first, rows.count); }

 private:
  Tensor stat(const Tensor& like) const { return p_.stat(p_.scratch, like.shape, like.place); }
  Pass& p_;
  const Saved& out_;
  const bool widens_;
  const Tensor sum_;
};

}  // namespace

void CachedAttention::forward(Pass& p, const CacheUse& use, const AttentionHeads& heads, const QueryKeyValue& in,
                              const Saved& out) const {
  attend(p, use, heads, in, out);
  merge_ranks(p, use, heads.window, out);
}

// To what is kept here: first each row's last run, then those before.
void CachedAttention::attend(Pass& p, const CacheUse& use, const AttentionHeads& heads, const QueryKeyValue& in,
                             const Saved& out) const {
  Scope temporaries(*p.scratch);
  Sums sums(p, out);
  const Tensor part = p.compute(p.scratch, out.o.shape, out.o.place);
  const Tensor part_lse = p.stat(p.scratch, out.lse.shape, out.lse.place);
  std::vector<AlikeRows> looks;
  size_t most = 0;
  for (const CacheUse::Query& query : use.queries)
    for (AlikeRows& rows : alike_rows(query, use.rank, heads.window)) {
      most = std::max(most, rows.seen.size());
      looks.push_back(std::move(rows));
    }
  const auto has = [](size_t turn) { return [turn](const AlikeRows& r) { return r.seen.size() > turn; }; };
  for (size_t turn = 0; turn < most; ++turn) {
    for_rows(looks, has(turn), [&](const Run& rows, std::span<const AlikeRows> those) {
      std::vector<AttentionSpan> spans;
      for (const AlikeRows& alike : those) {
        const CachedRun& run = alike.seen[turn];
        spans.push_back({.q_row = alike.rows.first - rows.first,
                         .q_count = alike.rows.count,
                         .k_row = run.row,
                         .k_count = run.count,
                         .q_position = alike.position,
                         .k_position = run.position});
      }
      const Tensor o = Sums::of(turn == 0 ? out.o : part, rows), lse = Sums::of(turn == 0 ? out.lse : part_lse, rows);
      p.be.run(Attention{
          .q = Sums::of(in.q, rows), .k = in.k, .v = in.v, .o = o, .lse = lse, .spans = spans, .heads = heads});
      turn == 0 ? sums.begin(rows) : sums.add(rows, o, lse);
    });
  }
  for_rows(looks, has(1), [&](const Run& rows, const auto&) { sums.end(rows); });
}

void CachedAttention::merge_ranks(Pass& p, const CacheUse& use, int64_t window, const Saved& out) const {
  Scope temporaries(*p.scratch);
  const int64_t n = out.o.rows();
  const Tensor all = rows_of_all_keepers(p.mesh, out.o, *p.scratch),
               all_lse = rows_of_all_keepers(p.mesh, out.lse, *p.scratch);
  const auto of_rank = [&](const Tensor& x, int rank, const Run& rows) {
    return x.slice_rows(rank * n + rows.first, rows.count).placed(out.o.place);
  };
  const auto ranks = int(all.rows() / n);
  using Query = CacheUse::Query;
  const auto is_kept = [](int rank) { return [rank](const Query& query) { return query.keeper == rank; }; };
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == use.rank) continue;
    for_rows(use.queries, is_kept(rank), [&](const Run& rows, const auto&) {
      p.be.run(Copy{.from = of_rank(all, rank, rows), .to = Sums::of(out.o, rows)});
      p.be.run(Copy{.from = of_rank(all_lse, rank, rows), .to = Sums::of(out.lse, rows)});
    });
  }
  Sums sums(p, out);
  const auto adds = [&](int rank) {
    return [rank, window](const Query& query) { return query.keeper != rank && sees_any(query, rank, window); };
  };
  const auto is_merged = [&](const Query& query) {
    bool any = false;
    for (int rank = 0; rank < ranks; ++rank) any = any || adds(rank)(query);
    return any;
  };
  for_rows(use.queries, is_merged, [&](const Run& rows, const auto&) { sums.begin(rows); });
  for (int rank = 0; rank < ranks; ++rank)
    for_rows(use.queries, adds(rank), [&](const Run& rows, const auto&) {
      sums.add(rows, of_rank(all, rank, rows), of_rank(all_lse, rank, rows));
    });
  for_rows(use.queries, is_merged, [&](const Run& rows, const auto&) { sums.end(rows); });
}

}  // namespace weft
