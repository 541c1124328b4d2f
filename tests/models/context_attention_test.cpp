// Attention of ranks that share sequences, beside that of one rank.
//   S tokens of a sequence   T rows of a rank   h, g query and key heads of width e
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "weft/comm/local_group.h"
#include "weft/nn/attention_core.h"
#include "weft/nn/attention_part.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

using Keys = ContextPlan::Keys;

constexpr int64_t kSeq = 24, kSequences = 2, kAll = kSeq * kSequences;

struct CoreCase {
  std::vector<int64_t> documents;  // lengths, in each sequence
  int64_t q = 4, kv = 4, dim = 3, window = 0;
  double dropout = 0;
  AttentionHeads heads() const {
    return {
        .q = q, .kv = kv, .dim = dim, .first = 0, .total = q, .scale = 1 / std::sqrt(double(dim)), .window = window};
  }
};

std::vector<AttentionSpan> spans_of(const CoreCase& c) {
  std::vector<AttentionSpan> spans;
  for (int64_t sequence = 0; sequence < kSequences; ++sequence) {
    int64_t at = 0;
    for (const int64_t n : c.documents) {
      const int64_t row = sequence * kSeq + at;
      spans.push_back({row, n, row, n, at, at, 40 + sequence});
      at += n;
    }
  }
  return spans;
}

// The same for every layout: row r, column j of a tensor of whole sequences.
double value_at(int tensor, int64_t row, int64_t column) {
  std::mt19937 gen(uint32_t((tensor * 1000 + row) * 1000 + column));
  gen.discard(3);
  return double(gen() % 2001) / 1000 - 1;
}

// Results for whole sequences: each rank writes its rows.
struct CoreResults {
  std::vector<double> o, lse, dq, dk, dv;
  explicit CoreResults(const CoreCase& c)
      : o(size_t(kAll * c.q * c.dim)),
        lse(size_t(kAll * c.q)),
        dq(o.size()),
        dk(size_t(kAll * c.kv * c.dim)),
        dv(dk.size()) {}
};

// f(row here, row of whole sequences)
template <class F>
void for_rows(const SequenceCut& cut, const F& f) {
  int64_t here = 0;
  for (int64_t sequence = 0; sequence < kSequences; ++sequence)
    for (const Run& run : cut.runs())
      for (int64_t i = 0; i < run.count; ++i) f(here++, sequence * kSeq + run.first + i);
}

// Returns the scratch that it took.
int64_t run_rank(const CoreCase& c, const ContextPlan& plan, const ProcessMesh& mesh, CoreResults& results) {
  Arena arena("test", 1 << 20), scratch("scratch", 1 << 20);
  RefBackend backend(1);
  const SequenceCut cut{kSeq, {mesh.sizes.cp, place_of(mesh.sizes, mesh.world->rank()).cp}};
  const int64_t t = cut.rows() * kSequences;
  const std::vector<AttentionSpan> spans = spans_of(c);
  MicroBatch batch;
  batch.ids = arena.alloc(DType::i32, {t});
  batch.sequences = cut;
  batch.spans = spans;
  Pass p{backend, mesh, kF64, batch, &scratch, &scratch, &scratch, &scratch, &scratch, c.dropout > 0 ? uint64_t{7} : 0};
  const auto make = [&](int tensor, int64_t cols) {
    const Tensor x = arena.alloc(DType::f64, {t, cols}, tokens(Spmd::Shard1));
    for_rows(cut, [&](int64_t here, int64_t row) {
      for (int64_t j = 0; j < cols; ++j) x.as<double>()[here * cols + j] = value_at(tensor, row, j);
    });
    return x;
  };
  const int64_t q = c.q * c.dim, kv = c.kv * c.dim;
  const Tensor qkv = make(1, q + 2 * kv), dout = make(2, q), o = make(3, q), lse = make(4, c.q),
               d = make(5, q + 2 * kv);
  const auto split = [&](const Tensor& x) {
    return QueryKeyValue{x.slice_cols(0, q), x.slice_cols(q, kv), x.slice_cols(q + kv, kv)};
  };
  const auto core = make_attention_core(plan, c.heads(), {"core", c.dropout});
  core->forward(p, split(qkv), o, lse);
  core->backward(p, split(qkv), {o, lse}, dout, split(d));
  const auto [dq, dk, dv] = split(d);
  const auto keep = [&](const Tensor& x, std::vector<double>& to) {
    for_rows(cut, [&](int64_t here, int64_t row) {
      for (int64_t j = 0; j < x.cols(); ++j)
        to[size_t(row * x.cols() + j)] = static_cast<double*>(x.data)[here * x.row_stride + j];
    });
  };
  keep(o, results.o), keep(lse, results.lse), keep(dq, results.dq), keep(dk, results.dk), keep(dv, results.dv);
  return scratch.peak();
}

void expect_equal_values(const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
  double apart = 0;
  for (size_t i = 0; i < a.size(); ++i) apart = std::max(apart, std::abs(a[i] - b[i]));
  EXPECT_LE(apart, 1e-12) << what;
}

struct OfRanks {
  int cp;
  ContextPlan plan;
};
std::vector<OfRanks> plans() {
  std::vector<OfRanks> all;
  for (const int cp : {2, 3, 4}) {
    all.push_back({cp, {.keys = Keys::gathered}});
    all.push_back({cp, {.keys = Keys::ring}});
    all.push_back({cp, {.head_ranks = cp}});
  }
  all.push_back({4, {.keys = Keys::ring, .head_ranks = 2}});
  all.push_back({6, {.keys = Keys::ring, .head_ranks = 2}});
  return all;
}

TEST(ContextAttention, EqualsThatOfOneRank) {
  const CoreCase cases[] = {{.documents = {24}},
                            {.documents = {24}, .kv = 2, .window = 5},
                            {.documents = {1, 9, 14}, .kv = 2},
                            {.documents = {7, 2, 3, 12}, .window = 4},
                            {.documents = {5, 19}, .kv = 2, .window = 9, .dropout = 0.3}};
  for (const CoreCase& c : cases) {
    CoreResults one(c);
    run_local(MeshSizes{}, [&](const ProcessMesh& mesh) { run_rank(c, {}, mesh, one); });
    for (const auto& [cp, plan] : plans()) {
      if (c.kv % plan.head_ranks == 0) {
        CoreResults many(c);
        std::vector<int64_t> scratch(static_cast<size_t>(cp));
        run_local(MeshSizes{.cp = cp}, [&, plan = plan](const ProcessMesh& mesh) {
          scratch[size_t(mesh.world->rank())] = run_rank(c, plan, mesh, many);
        });
        const std::string which = fmt::format("keys {} heads over {} cp {} window {} of {} documents", int(plan.keys),
                                              plan.head_ranks, cp, c.window, c.documents.size());
        expect_equal_values(many.o, one.o, "o, " + which);
        expect_equal_values(many.lse, one.lse, "lse, " + which);
        expect_equal_values(many.dq, one.dq, "dq, " + which);
        expect_equal_values(many.dk, one.dk, "dk, " + which);
        expect_equal_values(many.dv, one.dv, "dv, " + which);
        for (const int64_t bytes : scratch) EXPECT_EQ(bytes, scratch[0]) << which;
      }
    }
  }
}

// What a ring calls attention with, in all: of 64 tokens in eight runs, each run's queries with each run's keys.
using Called = std::pair<int64_t, int64_t>;  // calls; queries times keys in them
Called called_of(int64_t document, int64_t window) {
  constexpr int64_t kTokens = 64, kRun = 8;
  std::vector<AttentionSpan> documents;
  for (int64_t at = 0; at < kTokens; at += document)
    documents.push_back({.q_row = at, .q_count = document, .k_row = at, .k_count = document});
  Called all;
  for (int64_t q = 0; q < kTokens; q += kRun)
    for (int64_t k = 0; k < kTokens; k += kRun)
      if (const auto part = part_of(documents, {{q, kRun}, 0}, {{k, kRun}, 0}, window)) {
        ++all.first;
        for (const AttentionSpan& s : part->spans) all.second += s.q_count * s.k_count;
      }
  return all;
}

TEST(AttentionPart, IsOfQueriesAndKeysThatSeeEachOther) {
  EXPECT_EQ(called_of(64, 0), (Called{36, 36 * 64})) << "a run and those before it";
  EXPECT_EQ(called_of(16, 0), (Called{12, 12 * 64})) << "two runs of each document";
  EXPECT_EQ(called_of(4, 0), (Called{8, 16 * 16})) << "two documents of each run";
  // The window reaches nine keys back: over the run before, and of the one before that to one key of one query.
  EXPECT_EQ(called_of(64, 10), (Called{8 + 7 + 6, 8 * 64 + 7 * 64 + 6}));
  EXPECT_EQ(called_of(64, 5), (Called{8 + 7, 8 * 64 + 7 * 4 * 4}));
  EXPECT_EQ(called_of(64, 1), (Called{8, 8 * 64}));
}

}  // namespace
}  // namespace weft
