// Tokens that look back into pages of a cache, beside the same tokens where all keys lie in a row.
#include "weft/nn/cached_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

constexpr int64_t kCacheRows = 64;

double cached_value(int tensor, int64_t row, int64_t column) {
  return std::sin(double(tensor * 31 + row * 7 + column * column + row * row % 13));
}

// A text's keys lie in `runs`; its tokens `asked` look back.
struct LookingText {
  std::vector<CachedRun> runs;
  Run asked;
};

class CachedRuns {
 public:
  explicit CachedRuns(int64_t window)
      : heads_{.q = 4, .kv = 2, .dim = 3, .first = 0, .total = 4, .scale = 0.7, .window = window} {}

  // The texts lie one behind the other in the rows of a pass; each token sees through the cache what it sees in a row.
  void expect_as_in_a_row(const std::vector<LookingText>& texts) {
    memory_.rewind();
    int64_t n = 0;
    for (const LookingText& t : texts) n += t.asked.count;
    const Tensor q = make(n, heads_.q), k = make(kCacheRows, heads_.kv), v = make(kCacheRows, heads_.kv);
    CacheUse use;
    int64_t row = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      const LookingText& t = texts[i];
      use.queries.push_back({.rows = {row, t.asked.count}, .position = t.asked.first, .keeper = 0, .runs = {&t.runs}});
      row += t.asked.count;
      for (const CachedRun& run : t.runs) fill(k, 2 * int(i), run), fill(v, 2 * int(i) + 1, run);
    }
    fill(q, 99, {0, n, 0});
    const MicroBatch batch;
    Pass p{backend_, mesh_, kF64, batch, &memory_, &memory_, &memory_, &memory_, &memory_};
    const AttentionCore::Saved got{make(n, heads_.q), memory_.alloc(DType::f64, {n, heads_.q}, tokens(Spmd::Shard1))};
    CachedAttention().forward(p, use, heads_, {q, k, v}, got);
    for (size_t i = 0; i < texts.size(); ++i) expect_text(int(i), use.queries[i], q, got);
  }

 private:
  Tensor make(int64_t rows, int64_t heads) {
    return memory_.alloc(DType::f64, {rows, heads * heads_.dim}, tokens(Spmd::Shard1));
  }
  static void fill(const Tensor& x, int tensor, const CachedRun& run) {
    for (int64_t i = 0; i < run.count; ++i)
      for (int64_t j = 0; j < x.cols(); ++j)
        x.as<double>()[(run.row + i) * x.row_stride + j] = cached_value(tensor, run.position + i, j);
  }
  void expect_text(int text, const CacheUse::Query& query, const Tensor& q, const AttentionCore::Saved& got) {
    const int64_t n = query.rows.count, all = query.position + n;
    const Tensor k = make(all, heads_.kv), v = make(all, heads_.kv), o = make(n, heads_.q);
    fill(k, 2 * text, {0, all, 0});
    fill(v, 2 * text + 1, {0, all, 0});
    const Tensor lse = memory_.alloc(DType::f64, {n, heads_.q}, tokens(Spmd::Shard1));
    const std::array span{AttentionSpan{.q_count = n, .k_count = all, .q_position = query.position}};
    backend_.run(Attention{
        .q = q.slice_rows(query.rows.first, n), .k = k, .v = v, .o = o, .lse = lse, .spans = span, .heads = heads_});
    for (const auto& [mine, whole] : {std::pair{got.o, o}, {got.lse, lse}})
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < whole.cols(); ++j)
          EXPECT_NEAR(mine.as<double>()[(query.rows.first + i) * mine.row_stride + j],
                      whole.as<double>()[i * whole.row_stride + j], 1e-12)
              << "window " << heads_.window << ", text " << text << ", token " << query.position + i;
  }

  const AttentionHeads heads_;
  Arena memory_{"test", 1 << 20};
  RefBackend backend_{1};
  const ProcessMesh mesh_ = single_mesh();
};

// Runs that begin before, within and behind the window of some of the tokens and not of others; two texts in a pass.
TEST(CachedAttention, ManyTokensOverScatteredRunsSeeWhatTheyWouldInARow) {
  const LookingText scattered{{{0, 8, 40}, {8, 3, 2}, {11, 5, 30}, {16, 12, 10}}, {9, 19}};
  const LookingText in_one{{{0, 6, 50}}, {2, 4}};
  const LookingText one_token{{{0, 8, 40}, {8, 1, 2}}, {8, 1}};
  for (const int64_t window : {0, 1, 3, 6, 11, 40}) {
    CachedRuns cache(window);
    cache.expect_as_in_a_row({scattered});
    cache.expect_as_in_a_row({in_one, scattered});
    cache.expect_as_in_a_row({one_token, in_one});
  }
}

}  // namespace
}  // namespace weft
