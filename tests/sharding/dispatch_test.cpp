// Rows of experts from rank to rank and back: where they arrive, that both ways are adjoint, and what is dropped.
#include "weft/sharding/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>

#include "support.h"
#include "weft/comm/local_group.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/sharding/text_ranks.h"

namespace weft {
namespace {

constexpr int64_t kTokensHere = 7, kExperts = 8, kChosen = 3, kRowWidth = 5;  // tokens of each rank

// The experts of a token, all different; more often the first ones.
std::vector<int32_t> experts_of(int rank, int64_t token) {
  std::mt19937 gen(uint32_t(100 * rank + int(token)));
  std::vector<int32_t> all(kExperts);
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> chosen;
  while (int64_t(chosen.size()) < kChosen) {
    const size_t at = std::min(gen() % all.size(), gen() % all.size());
    chosen.push_back(all[at]);
    all.erase(all.begin() + std::ptrdiff_t(at));
  }
  return chosen;
}

// One of some ranks of ep, with routes for its tokens.
struct ExpertRank {
  ExpertRank(const ProcessMesh& of, ExpertCapacity capacity)
      : mesh(of),
        dispatch({.name = "blocks.0.mlp", .experts = kExperts, .chosen = kChosen, .capacity = capacity}),
        ids(arena.alloc(DType::i32, {kTokensHere, kChosen})) {
    for (int64_t t = 0; t < kTokensHere; ++t) {
      const auto chosen = experts_of(rank(), t);
      std::copy(chosen.begin(), chosen.end(), ids.as<int32_t>() + t * kChosen);
    }
    routes = dispatch.route(at(), ids, arena);
  }
  Dispatch::At at() { return {backend, mesh, scratch}; }
  int rank() const { return mesh[Axis::ep].rank(); }
  int ranks() const { return mesh[Axis::ep].size(); }
  int64_t experts_here() const { return kExperts / ranks(); }

  const ProcessMesh& mesh;
  RefBackend backend{1};
  Arena arena{"test", 1 << 16}, scratch{"scratch", 1 << 16};
  Dispatch dispatch;
  Tensor ids;
  Dispatch::Routes routes;
};

void on_ranks(int ranks, ExpertCapacity capacity, const std::function<void(ExpertRank&)>& f) {
  run_local(MeshSizes{.dp = ranks, .ep = ranks}, [&](const ProcessMesh& mesh) {
    ExpertRank rank(mesh, capacity);
    f(rank);
  });
}

// Says which pair a row is of.
double name_of_pair(int rank, int64_t pair) { return double(1000 * rank + pair); }

TEST(Dispatch, RowsAreByExpertThenByRankThenByToken) {
  for (const int ranks : {1, 2, 4, 8}) {
    on_ranks(ranks, {}, [&](ExpertRank& r) {
      Tensor x = r.arena.alloc(DType::f64, {kTokensHere * kChosen}, tokens(Spmd::Replicate));
      for (int64_t i = 0; i < x.elements(); ++i) x.as<double>()[i] = name_of_pair(r.rank(), i);
      const Tensor rows = r.dispatch.to_experts(r.at(), r.routes, x, 1, r.arena);
      EXPECT_EQ(rows.place, expert_rows(Spmd::Replicate));
      std::vector<double> expected;
      std::vector<int32_t> offsets{0};
      for (int64_t e = 0; e < r.experts_here(); ++e) {
        for (int from = 0; from < ranks; ++from)
          for (int64_t t = 0; t < kTokensHere; ++t)
            for (int64_t j = 0; j < kChosen; ++j)
              if (experts_of(from, t)[size_t(j)] == r.rank() * r.experts_here() + e)
                expected.push_back(name_of_pair(from, t * kChosen + j));
        offsets.push_back(int32_t(expected.size()));
      }
      EXPECT_EQ(std::vector(rows.as<double>(), rows.as<double>() + rows.elements()), expected) << ranks << " ranks";
      EXPECT_EQ(std::vector(r.routes.offsets.as<int32_t>(), r.routes.offsets.as<int32_t>() + r.experts_here() + 1),
                offsets);
      EXPECT_EQ(r.routes.dropped, 0);
    });
  }
}

TEST(Dispatch, PairsHaveTheSameNumbersWhereverTheirRowsAre) {
  const int64_t apart = int64_t{1} << 40;  // numbers of tokens are beyond 32 bits
  for (const int ranks : {1, 2, 4, 8})
    on_ranks(ranks, {}, [&](ExpertRank& r) {
      const Tensor of_tokens = r.arena.alloc(DType::i64, {kTokensHere});
      for (int64_t t = 0; t < kTokensHere; ++t) of_tokens.as<int64_t>()[t] = apart * r.rank() + t;
      const Tensor numbers = r.dispatch.pair_numbers(r.at(), r.routes, of_tokens, r.arena);
      std::vector<int64_t> expected;
      for (int64_t e = r.rank() * r.experts_here(); e < (r.rank() + 1) * r.experts_here(); ++e)
        for (int from = 0; from < ranks; ++from)
          for (int64_t t = 0; t < kTokensHere; ++t)
            for (const int32_t chosen : experts_of(from, t))
              if (chosen == e) expected.push_back((apart * from + t) * kExperts + e);
      EXPECT_EQ(std::vector(numbers.as<int64_t>(), numbers.as<int64_t>() + numbers.elements()), expected)
          << ranks << " ranks";
    });
}

// Every rank of cp has the same tokens: each pair has a row on one of them, which holds its expert; ranks that hold the
// same experts have as many; and tokens get the sum of all their pairs.
TEST(Dispatch, RanksWithTheSameTokensShareTheirPairsOut) {
  for (const MeshSizes& sizes : {MeshSizes{.cp = 2}, MeshSizes{.cp = 2, .ep = 2}, MeshSizes{.cp = 4, .ep = 2},
                                 MeshSizes{.cp = 4, .ep = 2, .order = *mesh_order("tp-cp-dp-ep-pp")}}) {
    std::vector<std::vector<int64_t>> rows_of(size_t(sizes.ep));  // of each rank of edp
    std::mutex mutex;
    run_local(sizes, [&](const ProcessMesh& mesh) {
      RefBackend backend{1};
      Arena arena("test", 1 << 16), scratch("scratch", 1 << 16);
      const Dispatch dispatch({.name = "blocks.0.mlp", .experts = kExperts, .chosen = kChosen, .capacity = {}});
      const Dispatch::At at{backend, mesh, scratch};
      const Tensor ids = arena.alloc(DType::i32, {kTokensHere, kChosen});
      Tensor x = arena.alloc(DType::f64, {kTokensHere, kRowWidth}, tokens(Spmd::Replicate));
      for (int64_t t = 0; t < kTokensHere; ++t) {
        const auto chosen = experts_of(0, t);
        std::copy(chosen.begin(), chosen.end(), ids.as<int32_t>() + t * kChosen);
        std::fill_n(x.as<double>() + t * kRowWidth, kRowWidth, double(t + 1));
      }
      const auto sharer = sharer_of_experts(mesh);
      ASSERT_TRUE(sharer);
      const Dispatch::Routes r = dispatch.route_shared(at, ids, *sharer, arena);
      const Tensor rows = dispatch.to_experts(at, r, x, kChosen, arena);
      const auto* offsets = r.offsets.as<int32_t>();
      const int64_t here = kExperts / sizes.ep, ep = mesh[Axis::ep].rank();
      EXPECT_EQ(offsets[here], r.rows);
      for (int64_t e = 0; e < here; ++e)
        for (int32_t i = offsets[e]; i < offsets[e + 1]; ++i) {
          const auto token = int64_t(rows.as<double>()[i * kRowWidth]) - 1;
          const auto chosen = experts_of(0, token);
          EXPECT_EQ(std::count(chosen.begin(), chosen.end(), ep * here + e), 1) << token;
          for (int64_t c = 0; c < kRowWidth; ++c) rows.as<double>()[i * kRowWidth + c] = double(ep * here + e + 1);
        }
      const Tensor y = dispatch.to_tokens(at, r, rows);
      for (int64_t t = 0; t < kTokensHere; ++t) {
        const auto chosen = experts_of(0, t);
        const double sum = std::accumulate(chosen.begin(), chosen.end(), double(kChosen));
        EXPECT_EQ(y.as<double>()[t * kRowWidth], sum);
        EXPECT_EQ(y.as<double>()[t * kRowWidth + kRowWidth - 1], sum);
      }
      const std::lock_guard lock(mutex);
      rows_of[size_t(ep)].push_back(r.rows);
    });
    int64_t all = 0;
    for (const auto& ranks : rows_of) {
      EXPECT_EQ(int64_t(ranks.size()), sizes.cp / sizes.ep);
      const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end());
      EXPECT_LE(*most - *least, 1);
      all = std::accumulate(ranks.begin(), ranks.end(), all);
    }
    EXPECT_EQ(all, kTokensHere * kChosen);
  }
}

TEST(Dispatch, RanksOfOtherTextsDoNotShareThisOnesPairs) {
  run_local(MeshSizes{.dp = 2, .cp = 2, .ep = 2},
            [](const ProcessMesh& mesh) { EXPECT_FALSE(sharer_of_experts(mesh)); });
  run_local(MeshSizes{.dp = 2, .cp = 2}, [](const ProcessMesh& mesh) { EXPECT_TRUE(sharer_of_experts(mesh)); });
  run_local(MeshSizes{.dp = 2, .ep = 2}, [](const ProcessMesh& mesh) { EXPECT_FALSE(sharer_of_experts(mesh)); });
}

TEST(Dispatch, ARankHasRoomForAllThatCanComeWhereNothingElseIsSaid) {
  EXPECT_EQ(ExpertCapacity{}.rows(10, 2, 8, 1), 20);
  EXPECT_EQ(ExpertCapacity{}.rows(10, 2, 8, 4), 80);  // of each of 40 tokens, both experts
  EXPECT_EQ(ExpertCapacity{}.rows(10, 2, 8, 8), 80);  // one is here
  EXPECT_EQ(ExpertCapacity{.factor = 1.25}.rows(10, 2, 8, 4), 25);
  EXPECT_EQ(ExpertCapacity{.factor = 1.01}.rows(10, 2, 8, 4), 21);
  EXPECT_EQ(ExpertCapacity{.factor = 1e300}.rows(10, 2, 8, 4), 80);
  EXPECT_EQ(ExpertCapacity{.factor = 100}.rows(10, 2, 8, 4), 80);
}

// <A x, y> and <x, A' y>, over all ranks.
struct Products {
  double left = 0, right = 0;
};
double inner_product_of(const Tensor& x, const Tensor& y) {
  return std::inner_product(x.as<double>(), x.as<double>() + x.elements(), y.as<double>(), 0.0);
}
Tensor with_numbers(Tensor x, uint32_t seed) {
  std::mt19937 gen(seed);
  std::normal_distribution<double> n;
  std::generate_n(x.as<double>(), x.elements(), [&] { return n(gen); });
  return x;
}
Products products_of(int ranks, ExpertCapacity capacity, bool of_tokens) {
  Products sum;
  std::mutex mutex;
  on_ranks(ranks, capacity, [&](ExpertRank& r) {
    const auto seed = uint32_t(r.rank());
    const Placement here = tokens(Spmd::Replicate);
    const Shape shape = of_tokens ? Shape(kTokensHere, kRowWidth) : Shape(kTokensHere * kChosen);
    const Tensor x = with_numbers(r.arena.alloc(DType::f64, shape, here), seed);
    const Tensor ax = r.dispatch.to_experts(r.at(), r.routes, x, of_tokens ? kChosen : 1, r.arena);
    const Tensor y = with_numbers(r.arena.alloc(DType::f64, ax.shape, ax.place), seed + 50);
    const Tensor ay = of_tokens ? r.dispatch.to_tokens(r.at(), r.routes, y) : r.dispatch.to_pairs(r.at(), r.routes, y);
    EXPECT_EQ(ay.place, here);
    std::lock_guard lock(mutex);
    sum.left += inner_product_of(ax, y);
    sum.right += inner_product_of(x, ay);
  });
  return sum;
}

TEST(Dispatch, TheWayBackIsTheAdjointOfTheWayThere) {
  for (const int ranks : {1, 2, 4, 8})
    for (const bool drops : {false, true})
      for (const bool of_tokens : {false, true}) {
        const ExpertCapacity capacity = drops ? ExpertCapacity{.factor = 1, .drops = true} : ExpertCapacity{};
        const Products p = products_of(ranks, capacity, of_tokens);
        EXPECT_NEAR(p.left, p.right, 1e-12 * std::abs(p.left)) << ranks << (drops ? " with drops" : "");
      }
}

// What routes, the way there and the way back take of arenas "kept" and "scratch".
std::pair<int64_t, int64_t> memory_of(const Dispatch& dispatch, const Dispatch::At& at, const Tensor& ids,
                                      Arena& kept) {
  const Dispatch::Routes routes = dispatch.route(at, ids, kept);
  const Tensor x = kept.alloc(DType::f64, {kTokensHere, kRowWidth}, tokens(Spmd::Replicate));
  const Tensor numbered = kept.alloc(DType::i64, {kTokensHere});
  if (numbered.data != nullptr) std::fill_n(numbered.as<int64_t>(), kTokensHere, 0);
  dispatch.pair_numbers(at, routes, numbered, kept);
  dispatch.to_tokens(at, routes, dispatch.to_experts(at, routes, x, kChosen, kept));
  return {kept.peak(), at.scratch.peak()};
}

struct NoBackend final : Backend {
  void run(const AnyOp&) override {}
};

TEST(Dispatch, ADryRunTakesTheMemoryOfEveryRun) {
  for (const ExpertCapacity capacity : {ExpertCapacity{}, ExpertCapacity{.factor = 1, .drops = true}})
    on_ranks(2, capacity, [&](ExpertRank& r) {
      Arena kept("kept", 1 << 16), scratch("scratch", 1 << 16), counted("kept"), counted_scratch("scratch");
      NoBackend nothing;
      const ProcessMesh dry = dry_mesh({.dp = 2, .ep = 2}, r.rank());
      const Tensor dry_ids(nullptr, DType::i32, r.ids.shape);
      EXPECT_EQ(memory_of(r.dispatch, {nothing, dry, counted_scratch}, dry_ids, counted),
                memory_of(r.dispatch, {r.backend, r.mesh, scratch}, r.ids, kept));
    });
}

// Counts: [rank][expert], the experts of two ranks.
ExpertCounts counts_of(const std::vector<std::vector<int64_t>>& pairs) {
  ExpertCounts counts(int64_t(pairs.size()), int64_t(pairs[0].size()));
  for (size_t r = 0; r < pairs.size(); ++r)
    for (size_t e = 0; e < pairs[r].size(); ++e) counts.of(int64_t(r), int64_t(e)) = pairs[r][e];
  return counts;
}
std::vector<std::vector<int64_t>> pairs_of(const ExpertCounts& counts, int64_t experts) {
  std::vector<std::vector<int64_t>> pairs;
  for (int64_t r = 0; r < counts.ranks(); ++r) {
    pairs.emplace_back();
    for (int64_t e = 0; e < experts; ++e) pairs.back().push_back(counts.of(r, e));
  }
  return pairs;
}

TEST(Dispatch, WhoHasMostLosesMost) {
  using Pairs = std::vector<std::vector<int64_t>>;
  const ExpertCounts counts = counts_of({{9, 1, 2, 0}, {4, 3, 1, 1}});
  EXPECT_EQ(counts.received(0), 17);
  EXPECT_EQ(counts.fullest(), 0);
  EXPECT_EQ(pairs_of(counts.within(17), 4), (Pairs{{9, 1, 2, 0}, {4, 3, 1, 1}}));
  EXPECT_EQ(pairs_of(counts.within(12), 4), (Pairs{{4, 1, 2, 0}, {4, 3, 1, 1}}));
  EXPECT_EQ(pairs_of(counts.within(11), 4), (Pairs{{4, 1, 2, 0}, {3, 3, 1, 1}}));  // one of two that would have 4
  EXPECT_EQ(pairs_of(counts.within(3), 4), (Pairs{{1, 1, 1, 0}, {1, 0, 1, 1}}));   // of the other rank too
}

TEST(Dispatch, DroppedPairsReadAsZerosAndTheOthersAreTheFirstOfEachExpert) {
  on_ranks(4, {.factor = 1, .drops = true}, [&](ExpertRank& r) {
    EXPECT_LE(r.routes.rows, r.routes.capacity);
    EXPECT_EQ(r.routes.capacity, kTokensHere * kChosen);
    const Tensor ones = r.arena.alloc(DType::f64, {r.routes.rows}, expert_rows(Spmd::Replicate));
    std::fill_n(ones.as<double>(), ones.elements(), 1.0);
    const Tensor came = r.dispatch.to_pairs(r.at(), r.routes, ones);
    int64_t dropped = 0;
    std::array<bool, kExperts> is_over = {};
    for (int64_t i = 0; i < came.elements(); ++i) {
      const bool goes = r.routes.places.as<int32_t>()[i] >= 0;
      EXPECT_EQ(came.as<double>()[i], goes ? 1 : 0);
      bool& over = is_over[size_t(r.ids.as<int32_t>()[i])];
      EXPECT_FALSE(over && goes) << "a later pair goes in place of an earlier one";
      over = over || !goes;
      dropped += goes ? 0 : 1;
    }
    EXPECT_EQ(r.routes.dropped, dropped);
    const Tensor all = r.arena.alloc(DType::f64, {1});
    *all.as<double>() = double(dropped);
    r.mesh[Axis::ep].all_reduce(all).wait();
    EXPECT_GT(*all.as<double>(), 0) << "a case in which nothing is dropped";
  });
}

TEST(Dispatch, MoreRowsThanThereIsRoomForIsTheSameErrorOnEveryRank) {
  std::mutex mutex;
  std::vector<std::string> said;
  run_local(MeshSizes{.dp = 4, .ep = 4}, [&](const ProcessMesh& mesh) {
    try {
      const ExpertRank rank(mesh, {.factor = 1});
    } catch (const CapacityError& e) {
      std::lock_guard lock(mutex);
      said.push_back(e.what());
    }
  });
  ASSERT_EQ(said.size(), 4u);
  for (const std::string& text : said) EXPECT_EQ(text, said[0]);
  EXPECT_SAYS(said[0], "blocks.0.mlp: the experts of expert-parallel rank 0 of 4 would receive ");
  EXPECT_SAYS(said[0], "room for 21 by moe.capacity_factor = 1; set it to ");
}

}  // namespace
}  // namespace weft
