// Attention from latents beside its formula, written as plain loops, and its two forms of decoding.
#include "weft/nn/latent_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "weft/models/init.h"
#include "weft/models/rope_table.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/step/step_spec.h"

namespace weft {
namespace {

constexpr int64_t kTokens = 11, kWidth = 10, kHeads = 3, kNope = 5, kRope = 4, kValue = 6, kKvRank = 7;
constexpr double kEps = 1e-6, kScale = 0.4;
using Values = std::vector<double>;

// One layer with random weights, alone.
class Layer {
 public:
  Layer(int64_t q_rank, bool interleaved)
      : table_(constants_.alloc(DType::f64, {kTokens, kRope})),
        attention_(params_, "attn",
                   {.width = kWidth,
                    .heads = kHeads,
                    .q_rank = q_rank,
                    .kv_rank = kKvRank,
                    .nope_dim = kNope,
                    .rope_dim = kRope,
                    .v_dim = kValue,
                    .interleaved = interleaved,
                    .scale = kScale,
                    .norm_eps = kEps,
                    .rope_table = &table_,
                    .init_std = 0.5,
                    .out_init_std = 0.5,
                    .dropout = 0,
                    .attention_dropout = 0},
                   {}) {
    fill_rope_table({}, table_, *host_memory());
    params_.close_unit("attn", 0);
    params_.allocate({values_, values_, values_, values_},
                     [](const ParamSpec&, int64_t) { return std::vector<StateFormat>(); });
    init_weights(params_, 5, 1);
    for (const Param* p : params_.params())  // norms have weights of their own
      if (p->spec().shape.rank() == 1)
        for (const ParamStore::Stored& s : params_.stored(*p))
          for (int64_t i = 0; i < s.master.elements(); ++i) s.master.as<double>()[i] = 1 + 0.1 * double(i);
    params_.masters_changed(backend_);
    params_.fetch(0);
  }

  Values forward(const Values& h) {
    LatentAttention::Saved saved;
    return run(h, 0, [&](Pass& p, Tensor x) { return attention_.forward(p, saved, x); });
  }
  // The same tokens, so many at a time.
  Values decode(const Values& h, const std::vector<int64_t>& pieces) {
    Arena memory("cache", 1 << 16);
    const KvCache cache = attention_.make_cache(memory, DType::f64, kTokens);
    Values all;
    std::vector<CachedRun> runs{{}};  // the text in one
    for (int64_t n : pieces) {
      const int64_t first = runs[0].count;
      runs[0].count += n;
      CacheUse use{.writes = {{{0, n}, first}}, .queries = {}, .ends = {}};
      if (first > 0) use.queries.push_back({.rows = {0, n}, .position = first, .keeper = 0, .runs = {&runs}});
      const auto begin = h.begin() + first * kWidth;
      const Values y = run({begin, begin + n * kWidth}, first,
                           [&](Pass& p, Tensor x) { return attention_.decode(p, cache, use, x); });
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }
  // Row i of a weight.
  const double* row(const std::string& name, int64_t i) const {
    for (const Param* p : params_.params())
      if (p->spec().name == "attn." + name + ".weight") return p->value.as<double>() + i * p->value.row_stride;
    throw std::runtime_error("no " + name);
  }

 private:
  template <class F>
  Values run(const Values& h, int64_t first, const F& f) {
    scratch_.rewind();
    const int64_t t = int64_t(h.size()) / kWidth;
    MicroBatch batch = alloc_micro_batch(scratch_, t, DType::f64);
    std::iota(batch.positions.as<int32_t>(), batch.positions.as<int32_t>() + t, int32_t(first));
    const std::array span{AttentionSpan{.q_count = t, .k_count = t}};
    batch.spans = span;
    Pass p{backend_, mesh_, kF64, batch, &scratch_, &scratch_, &scratch_, &scratch_, &scratch_};
    Tensor x = p.compute(&scratch_, {t, kWidth}, tokens(Spmd::Invariant));
    std::copy(h.begin(), h.end(), x.as<double>());
    const Tensor y = f(p, x);
    return {y.as<double>(), y.as<double>() + y.elements()};
  }

  Arena constants_{"constants", 1 << 12}, values_{"weights", 1 << 18}, scratch_{"scratch", 1 << 20};
  Tensor table_;
  ParamStore params_{kF64, {}};
  LatentAttention attention_;
  RefBackend backend_{1};
  const ProcessMesh mesh_ = single_mesh();
};

Values product(const Layer& layer, const std::string& name, int64_t out, const double* x, int64_t in) {
  Values y(size_t(out), 0.0);
  for (int64_t i = 0; i < out; ++i)
    for (int64_t j = 0; j < in; ++j) y[size_t(i)] += layer.row(name, i)[j] * x[j];
  return y;
}
void normalize(const Layer& layer, const std::string& name, double* x, int64_t n) {
  double squares = 0;
  for (int64_t j = 0; j < n; ++j) squares += x[j] * x[j];
  for (int64_t j = 0; j < n; ++j) x[j] *= layer.row(name, 0)[j] / std::sqrt(squares / double(n) + kEps);
}
void rotate(double* x, int64_t position, bool interleaved) {
  for (int64_t i = 0; i < kRope / 2; ++i) {
    const double angle = double(position) * std::pow(1e4, -2 * double(i) / double(kRope));
    double &a = x[interleaved ? 2 * i : i], &b = x[interleaved ? 2 * i + 1 : i + kRope / 2];
    const double turned = a * std::cos(angle) - b * std::sin(angle);
    b = b * std::cos(angle) + a * std::sin(angle);
    a = turned;
  }
}

// Token by token, head by head.
Values expected(const Layer& layer, const Values& h, int64_t q_rank, bool interleaved) {
  std::vector<Values> q, kv, shared;
  for (int64_t t = 0; t < kTokens; ++t) {
    const double* x = h.data() + t * kWidth;
    Values from(x, x + kWidth);
    if (q_rank > 0) {
      from = product(layer, "q_down", q_rank, x, kWidth);
      normalize(layer, "q_norm", from.data(), q_rank);
    }
    q.push_back(product(layer, "q", kHeads * (kNope + kRope), from.data(), int64_t(from.size())));
    for (int64_t i = 0; i < kHeads; ++i) rotate(q.back().data() + i * (kNope + kRope) + kNope, t, interleaved);
    Values latent = product(layer, "kv_down", kKvRank + kRope, x, kWidth);
    normalize(layer, "kv_norm", latent.data(), kKvRank);
    rotate(latent.data() + kKvRank, t, interleaved);
    kv.push_back(product(layer, "kv", kHeads * (kNope + kValue), latent.data(), kKvRank));
    shared.emplace_back(latent.begin() + kKvRank, latent.end());
  }
  Values all;
  for (int64_t t = 0; t < kTokens; ++t) {
    Values o(size_t(kHeads * kValue), 0.0);
    for (int64_t i = 0; i < kHeads; ++i) {
      Values p;
      for (int64_t s = 0; s <= t; ++s) {
        const double* query = q[size_t(t)].data() + i * (kNope + kRope);
        double score = 0;
        for (int64_t j = 0; j < kNope; ++j) score += query[j] * kv[size_t(s)][size_t(i * (kNope + kValue) + j)];
        for (int64_t j = 0; j < kRope; ++j) score += query[kNope + j] * shared[size_t(s)][size_t(j)];
        p.push_back(std::exp(kScale * score));
      }
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      for (int64_t s = 0; s <= t; ++s)
        for (int64_t j = 0; j < kValue; ++j)
          o[size_t(i * kValue + j)] += p[size_t(s)] / sum * kv[size_t(s)][size_t(i * (kNope + kValue) + kNope + j)];
    }
    const Values y = product(layer, "out", kWidth, o.data(), kHeads * kValue);
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

Values some_stream() {
  Values h;
  for (int64_t i = 0; i < kTokens * kWidth; ++i) h.push_back(std::sin(double(i * i % 97)));
  return h;
}

void expect_near(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << what << ", element " << i;
}

TEST(LatentAttention, IsItsFormula) {
  for (int64_t q_rank : {0, 8}) {
    for (bool interleaved : {false, true}) {
      Layer layer(q_rank, interleaved);
      expect_near(layer.forward(some_stream()), expected(layer, some_stream(), q_rank, interleaved),
                  fmt::format("rank {} of queries, interleaved {}", q_rank, interleaved));
    }
  }
}

// Attention to the heads' keys, for the first tokens, and to the latents, for later ones.
TEST(LatentAttention, DecodingPieceByPieceIsAllAtOnce) {
  for (int64_t q_rank : {0, 8}) {
    Layer layer(q_rank, true);
    const Values whole = layer.forward(some_stream());
    for (const std::vector<int64_t>& pieces :
         {std::vector<int64_t>{kTokens}, {4, 3, 1, 3}, std::vector<int64_t>(size_t(kTokens), 1)})
      expect_near(layer.decode(some_stream(), pieces), whole, fmt::format("{} pieces", pieces.size()));
  }
}

}  // namespace
}  // namespace weft
