// Attention on the CPU where it is long, or its cuts are odd: against single rows computed plainly, for no reference
// goes through 16384 tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "weft/base/rng.h"
#include "weft/ops/cpu/attention_blocks.h"
#include "weft/ops/cpu/cpu_backend.h"

namespace weft {
namespace {

// Operands of one document of `t` tokens, values in about [-1, 1].
struct Document {
  int64_t t;
  AttentionHeads heads;
  std::vector<float> q, k, v, o, lse, dout, dq, dk, dv;
  std::vector<AttentionSpan> spans;
  Document(int64_t t, AttentionHeads h)
      : t(t),
        heads(h),
        q(values(t * h.q * h.dim, 1)),
        k(values(t * h.kv * h.dim, 2)),
        v(values(t * h.kv * h.dim, 3)),
        o(q.size()),
        lse(size_t(t * h.q)),
        dout(values(t * h.q * h.dim, 4)),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()),
        spans{{.q_count = t, .k_count = t}} {}
  static std::vector<float> values(int64_t n, uint64_t key) {
    std::vector<float> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(float(int32_t(random_bits(key, uint64_t(i)))) * 0x1p-30f);
    return x;
  }
  Tensor matrix(std::vector<float>& x) const { return {x.data(), DType::f32, {t, int64_t(x.size()) / t}}; }
  Attention forward() {
    return {.q = matrix(q),
            .k = matrix(k),
            .v = matrix(v),
            .o = matrix(o),
            .lse = matrix(lse),
            .spans = spans,
            .heads = heads};
  }
  AttentionBackward backward() {
    return {.q = matrix(q),
            .k = matrix(k),
            .v = matrix(v),
            .o = matrix(o),
            .lse = matrix(lse),
            .dout = matrix(dout),
            .dq = matrix(dq),
            .dk = matrix(dk),
            .dv = matrix(dv),
            .spans = spans,
            .heads = heads};
  }
  const float* head(const std::vector<float>& x, int64_t row, int64_t head, int64_t heads_of_x) const {
    return x.data() + (row * heads_of_x + head) * heads.dim;
  }
  double dot(const float* a, const float* b) const {
    double sum = 0;
    for (int64_t c = 0; c < heads.dim; ++c) sum += double(a[c]) * double(b[c]);
    return sum;
  }
};

template <class Op>
void run(const Op& op, int threads) {
  const CpuSpec spec{.threads = threads};
  Arena workspace("workspace", CpuWorkspace(spec).of(op));
  CpuBackend(spec, workspace).run(op);
}

// Row i of a head, in double: o, and dq from the o and lse that the kernel saved.
void expect_row(const Document& d, int64_t i, int64_t h) {
  const int64_t g = h / (d.heads.q / d.heads.kv), e = d.heads.dim;
  const float *q = d.head(d.q, i, h, d.heads.q), *dout = d.head(d.dout, i, h, d.heads.q);
  const double lse = double(d.lse[size_t(i * d.heads.q + h)]), delta = d.dot(d.head(d.o, i, h, d.heads.q), dout);
  std::vector<double> o(size_t(e), 0.0), dq(size_t(e), 0.0);
  double sum = 0;
  for (int64_t j = d.heads.window ? std::max<int64_t>(0, i - d.heads.window + 1) : 0; j <= i; ++j) {
    const float *k = d.head(d.k, j, g, d.heads.kv), *v = d.head(d.v, j, g, d.heads.kv);
    const double p = std::exp(d.heads.scale * d.dot(q, k) - lse), ds = p * (d.dot(dout, v) - delta) * d.heads.scale;
    sum += p;
    for (int64_t c = 0; c < e; ++c) o[size_t(c)] += p * double(v[c]), dq[size_t(c)] += ds * double(k[c]);
  }
  EXPECT_NEAR(sum, 1, 2e-5) << "lse of row " << i;
  for (int64_t c = 0; c < e; ++c) {
    ASSERT_NEAR(d.head(d.o, i, h, d.heads.q)[c], o[size_t(c)] / sum, 2e-6) << "o of row " << i << ", head " << h;
    ASSERT_NEAR(d.head(d.dq, i, h, d.heads.q)[c], dq[size_t(c)], 2e-6) << "dq of row " << i << ", head " << h;
  }
}

// Row j of a key head, in double.
void expect_key(const Document& d, int64_t j, int64_t g) {
  const int64_t e = d.heads.dim, group = d.heads.q / d.heads.kv;
  std::vector<double> dk(size_t(e), 0.0), dv(size_t(e), 0.0);
  const float *k = d.head(d.k, j, g, d.heads.kv), *v = d.head(d.v, j, g, d.heads.kv);
  const int64_t end = d.heads.window ? std::min(d.t, j + d.heads.window) : d.t;
  for (int64_t i = j; i < end; ++i) {
    for (int64_t h = g * group; h < (g + 1) * group; ++h) {
      const float *q = d.head(d.q, i, h, d.heads.q), *dout = d.head(d.dout, i, h, d.heads.q);
      const double delta = d.dot(d.head(d.o, i, h, d.heads.q), dout);
      const double p = std::exp(d.heads.scale * d.dot(q, k) - double(d.lse[size_t(i * d.heads.q + h)]));
      const double ds = p * (d.dot(dout, v) - delta) * d.heads.scale;
      for (int64_t c = 0; c < e; ++c) dk[size_t(c)] += ds * double(q[c]), dv[size_t(c)] += p * double(dout[c]);
    }
  }
  for (int64_t c = 0; c < e; ++c) {
    ASSERT_NEAR(d.head(d.dk, j, g, d.heads.kv)[c], dk[size_t(c)], 1e-5 * (1 + std::abs(dk[size_t(c)])))
        << "dk of key " << j << ", head " << g;
    ASSERT_NEAR(d.head(d.dv, j, g, d.heads.kv)[c], dv[size_t(c)], 1e-5 * (1 + std::abs(dv[size_t(c)])))
        << "dv of key " << j << ", head " << g;
  }
}

void expect_some_rows(Document& d, const std::vector<int64_t>& rows) {
  run(d.forward(), 2);
  run(d.backward(), 2);
  for (int64_t i : rows) {
    for (int64_t h = 0; h < d.heads.q; ++h) expect_row(d, i, h);
    for (int64_t g = 0; g < d.heads.kv; ++g) expect_key(d, i, g);
  }
}

AttentionHeads heads(int64_t q, int64_t kv, int64_t dim, int64_t window = 0) {
  return {.q = q, .kv = kv, .dim = dim, .first = 0, .total = q, .scale = 1 / std::sqrt(double(dim)), .window = window};
}

TEST(CpuAttention, IsExactOverSixteenThousandTokens) {
  Document d(16384, heads(1, 1, 16));
  expect_some_rows(d, {0, 1, 63, 64, 8191, 16383});
}

TEST(CpuAttention, IsExactInAWindowOfSixteenThousandTokens) {
  Document d(16384, heads(2, 1, 16, 1000));
  expect_some_rows(d, {0, 999, 1000, 8191, 16383});
}

TEST(CpuAttention, IsExactForHeadsOfAnyWidth) {
  for (int64_t dim : {1, 6, 8, 16, 40, 64, 80, 96, 128, 256}) {
    SCOPED_TRACE(dim);
    Document d(150, heads(6, 2, dim));
    expect_some_rows(d, {0, 5, 17, 64, 149});
  }
}

TEST(CpuAttention, IsExactForManyQueryHeadsOfOneKeyHead) {
  for (int64_t group : {5, 16, 17, 71}) {
    SCOPED_TRACE(group);
    Document d(70, heads(group, 1, 32));
    expect_some_rows(d, {0, 13, 69});
  }
}

// What is computed of attention: strips of keys beside blocks of queries, and products of a query and a key in them.
struct Computed {
  int64_t strips = 0, pairs = 0;
};
Computed computed_of(const AttentionHeads& h, const std::vector<AttentionSpan>& spans) {
  const cpu::QueryBlocks blocks(h);
  Computed all;
  for (const AttentionSpan& s : spans)
    for (int64_t kv = 0; kv < h.kv; ++kv)
      for (int64_t set = 0; set < blocks.sets(); ++set)
        for (int64_t i = 0; i < blocks.count(s); ++i)
          cpu::for_strips(h, blocks.at(s, kv, set, i), {0, s.k_count}, [&](const cpu::Strip& strip) {
            ++all.strips;
            all.pairs += (strip.end - strip.begin) * strip.keys;
          });
  return all;
}

// 16,384 tokens, two heads of one key head: 512 blocks of 32 queries.
constexpr int64_t kLong = 16384, kBlocks = kLong * 2 / cpu::kBlockRows;

TEST(CpuAttention, AWindowIsAllThatIsComputed) {
  constexpr int64_t kWindow = 1000, kSeen = 2 * (kWindow * (kWindow + 1) / 2 + (kLong - kWindow) * kWindow);
  const Computed c = computed_of(heads(2, 1, 16, kWindow), {{.q_count = kLong, .k_count = kLong}});
  EXPECT_GE(c.pairs, kSeen);
  EXPECT_LE(c.pairs, kSeen + 2 * kLong * cpu::kEdgeKeys) << "of each row at most half an edge more on either side";
  EXPECT_LE(c.strips, kBlocks * (kWindow / cpu::kStripKeys + 6)) << "whole strips, and the edges' at both ends";
}

TEST(CpuAttention, ADocumentIsAllThatIsComputed) {
  constexpr int64_t kDocument = 256, kSeen = 2 * kLong * (kDocument + 1) / 2;
  std::vector<AttentionSpan> spans;
  for (int64_t at = 0; at < kLong; at += kDocument)
    spans.push_back({.q_row = at, .q_count = kDocument, .k_row = at, .k_count = kDocument});
  const Computed c = computed_of(heads(2, 1, 16), spans);
  EXPECT_GE(c.pairs, kSeen);
  EXPECT_LE(c.pairs, kSeen + 2 * kLong * cpu::kEdgeKeys / 2);
  EXPECT_LE(c.strips, kBlocks * (kDocument / cpu::kStripKeys / 2 + 2));
}

// All is finite from this row on, and something in an earlier row is not.
void expect_spoilt_before(const Document& d, int64_t row, int64_t earlier) {
  for (const auto* x : {&d.o, &d.dq, &d.dk, &d.dv}) {
    const size_t width = x->size() / size_t(d.t);
    const auto finite = [](float v) { return std::isfinite(v); };
    EXPECT_TRUE(std::all_of(x->begin() + row * int64_t(width), x->end(), finite));
    EXPECT_FALSE(std::isfinite((*x)[size_t(earlier) * width]));
  }
}
void spoil_keys(Document& d, int64_t rows) {
  for (std::vector<float>* x : {&d.k, &d.v})
    std::fill_n(x->begin(), rows * d.heads.kv * d.heads.dim, std::numeric_limits<float>::quiet_NaN());
}

// A product with NaN would be NaN, whatever multiplies it afterwards.
TEST(CpuAttention, KeysOutOfSightAreNotMultiplied) {
  Document window(512, heads(2, 1, 16, 100));
  spoil_keys(window, 256);
  run(window.forward(), 2);
  run(window.backward(), 2);
  expect_spoilt_before(window, 384, 255);  // the first block of 32 queries that sees none of them

  Document documents(512, heads(2, 1, 16));
  documents.spans = {{.q_count = 256, .k_count = 256}, {.q_row = 256, .q_count = 256, .k_row = 256, .k_count = 256}};
  spoil_keys(documents, 256);
  run(documents.forward(), 2);
  run(documents.backward(), 2);
  expect_spoilt_before(documents, 256, 255);
}

TEST(CpuAttention, NeedsMemoryThatGrowsWithTheTokens) {
  const auto bytes = [](int64_t t) {
    const Tensor q(nullptr, DType::bf16, {t, 8 * 128}), k(nullptr, DType::bf16, {t, 4 * 128});
    const Tensor lse(nullptr, DType::f32, {t, 8});
    const CpuWorkspace model({.threads = 4});
    const AttentionHeads h = heads(8, 4, 128);
    return std::max(model.of(Attention{.q = q, .k = k, .v = k, .o = q, .lse = lse, .spans = {}, .heads = h}),
                    model.of(AttentionBackward{.q = q,
                                               .k = k,
                                               .v = k,
                                               .o = q,
                                               .lse = lse,
                                               .dout = q,
                                               .dq = q,
                                               .dk = k,
                                               .dv = k,
                                               .spans = {},
                                               .heads = h}));
  };
  EXPECT_LE(bytes(1 << 20) - bytes(1 << 19), 2 * (bytes(1 << 19) - bytes(1 << 18)));
  EXPECT_LE(bytes(16384), 16384 * 8 * 128 * 4 * 2) << "more than two copies of q in f32";
}

}  // namespace
}  // namespace weft
