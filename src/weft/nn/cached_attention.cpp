#include "weft/nn/cached_attention.h"

#include <algorithm>

#include "weft/sharding/text_ranks.h"

namespace weft {
namespace {

using Saved = AttentionCore::Saved;

// What a query sees of each run that a rank keeps, the last first; those of which it sees nothing are left out.
std::vector<CachedRun> seen(const CacheUse::Query& query, int rank, int64_t window) {
  const std::vector<CachedRun>& runs = *query.runs[size_t(rank)];
  std::vector<CachedRun> all;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const int64_t first = window > 0 ? std::max(run->position, query.position - window + 1) : run->position;
    const int64_t end = std::min(run->end(), query.position + 1);
    if (first < end) all.push_back({first, end - first, run->row + first - run->position});
  }
  return all;
}

// f(rows) for the longest runs of rows among the first n for which `has` holds.
template <class Has, class F>
void for_rows(int64_t n, const Has& has, const F& f) {
  for (int64_t first = 0, end; first < n; first = end + 1) {
    for (end = first; end < n && has(end);) ++end;
    if (end > first) f(Run{first, end - first});
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
  const int64_t n = in.q.rows();
  Sums sums(p, out);
  const Tensor part = p.compute(p.scratch, out.o.shape, out.o.place);
  const Tensor part_lse = p.stat(p.scratch, out.lse.shape, out.lse.place);
  std::vector<std::vector<CachedRun>> runs;  // [row]
  size_t most = 0;
  for (const CacheUse::Query& query : use.queries) {
    runs.push_back(seen(query, use.rank, heads.window));
    most = std::max(most, runs.back().size());
  }
  const auto has = [&](size_t turn) { return [&, turn](int64_t row) { return runs[size_t(row)].size() > turn; }; };
  for (size_t turn = 0; turn < most; ++turn) {
    for_rows(n, has(turn), [&](const Run& rows) {
      std::vector<AttentionSpan> spans;
      for (int64_t i = 0; i < rows.count; ++i) {
        const CachedRun& run = runs[size_t(rows.first + i)][turn];
        spans.push_back({.q_row = i,
                         .q_count = 1,
                         .k_row = run.row,
                         .k_count = run.count,
                         .q_position = use.queries[size_t(rows.first + i)].position,
                         .k_position = run.position});
      }
      const Tensor o = Sums::of(turn == 0 ? out.o : part, rows), lse = Sums::of(turn == 0 ? out.lse : part_lse, rows);
      p.be.run(Attention{
          .q = Sums::of(in.q, rows), .k = in.k, .v = in.v, .o = o, .lse = lse, .spans = spans, .heads = heads});
      turn == 0 ? sums.begin(rows) : sums.add(rows, o, lse);
    });
  }
  for_rows(n, has(1), [&](const Run& rows) { sums.end(rows); });
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
  const auto is_kept = [&](int rank) {
    return [&, rank](int64_t row) { return use.queries[size_t(row)].keeper == rank; };
  };
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == use.rank) continue;
    for_rows(n, is_kept(rank), [&](const Run& rows) {
      p.be.run(Copy{.from = of_rank(all, rank, rows), .to = Sums::of(out.o, rows)});
      p.be.run(Copy{.from = of_rank(all_lse, rank, rows), .to = Sums::of(out.lse, rows)});
    });
  }
  Sums sums(p, out);
  const auto adds = [&](int rank) {
    return [&, rank](int64_t row) {
      const CacheUse::Query& query = use.queries[size_t(row)];
      return query.keeper != rank && !seen(query, rank, window).empty();
    };
  };
  const auto is_merged = [&](int64_t row) {
    bool any = false;
    for (int rank = 0; rank < ranks; ++rank) any = any || adds(rank)(row);
    return any;
  };
  for_rows(n, is_merged, [&](const Run& rows) { sums.begin(rows); });
  for (int rank = 0; rank < ranks; ++rank)
    for_rows(n, adds(rank),
             [&](const Run& rows) { sums.add(rows, of_rank(all, rank, rows), of_rank(all_lse, rank, rows)); });
  for_rows(n, is_merged, [&](const Run& rows) { sums.end(rows); });
}

}  // namespace weft
