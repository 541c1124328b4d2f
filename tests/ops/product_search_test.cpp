// Which way to multiply matrices is taken: a faster one that gives the bits of the library's own choice, and no other.
// The library of these tests multiplies on the host, in ways that are slow, wrong or broken on purpose.
#include "weft/ops/cuda/product_search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/host_kernels.h"
#include "weft/ops/cuda/bits_compared.h"

namespace weft {
namespace {

struct Manner {
  double seconds = 1e-3;
  bool fails = false, cannot_be_timed = false;
  bool is_wrong_later = false;  // from the second call on
  float off_by = 0;             // in one number of the result
};

ProductWay way_number(uint64_t i) { return {.algorithm = {i + 1}}; }

// One product [1024, 1024], whose ways are `manners`, the first choice at first.
class Product {
 public:
  explicit Product(std::vector<Manner> manners) : manners_(std::move(manners)) {}

  // A call of the product on its next data, of which every number is `all`, if that is given.
  std::optional<ProductWay> call(ProductChoice& choice, std::optional<float> all = {});
  int calls = 0, timed = 0, compared = 0, listed = 0;
  bool cannot_list = false;

 private:
  friend class Trial;
  std::vector<Manner> manners_;
};

class Trial final : public ProductTrial {
 public:
  Trial(Product& product, std::optional<float> all) : product_(product), all_(all) {}
  std::vector<ProductWay> ways() override {
    ++product_.listed;
    if (product_.cannot_list) return {};
    std::vector<ProductWay> all;
    for (size_t i = 0; i < product_.manners_.size(); ++i) all.push_back(way_number(i));
    return all;
  }
  int64_t telling() override {
    first_ = result(0);
    const auto report = compare(first_);
    return report.wild == 0 ? report.telling : 0;
  }
  std::optional<double> seconds_of(const ProductWay& way) override {
    ++product_.timed;
    const Manner& m = manner(way);
    return m.fails || m.cannot_be_timed ? std::nullopt : std::optional(m.seconds);
  }
  bool same_bits(const ProductWay& way) override {
    ++product_.compared;
    if (manner(way).fails) return false;
    auto other = result(way.algorithm[0] - 1);
    return compare(other).apart == 0;
  }

 private:
  static constexpr int64_t kSide = 1024;
  const Manner& manner(const ProductWay& way) const { return product_.manners_.at(way.algorithm[0] - 1); }
  std::vector<bf16> result(uint64_t way) const {
    std::vector<bf16> out;
    for (int64_t i = 0; i < kSide * kSide; ++i) out.emplace_back(all_ ? *all_ : 1 + float(i % 97));
    const Manner& m = product_.manners_[way];
    if (!m.is_wrong_later || product_.calls > 1) out[54321] = bf16(float(out[54321]) + m.off_by);
    return out;
  }
  gpu::BitsReport compare(std::vector<bf16>& other) {
    const auto tensor = [](std::vector<bf16>& x) { return Tensor(x.data(), DType::bf16, {kSide, kSide}); };
    std::vector<gpu::BitsReport> reports(size_t{gpu::kMostBitsReports});
    testing::HostLauncher launcher;
    return gpu::compare_bits(launcher, tensor(first_), tensor(other), {}, reports.data());
  }

  Product& product_;
  std::optional<float> all_;
  std::vector<bf16> first_;
};

std::optional<ProductWay> Product::call(ProductChoice& choice, std::optional<float> all) {
  ++calls;
  if (!choice.is_open()) return {};
  Trial trial(*this, all);
  return choice.learn(trial);
}

ProductChoice choice_of(int64_t outputs = int64_t{1} << 20, std::optional<ProductWay> kept = {}) {
  return ProductChoice(way_number(0), outputs, kept);
}

TEST(ProductSearch, TheFastestWayOfTheSameBitsIsTakenOnceItIsProven) {
  Product product({{1e-3}, {0.9e-3}, {0.5e-3}, {0.7e-3}});
  ProductChoice choice = choice_of();
  EXPECT_EQ(product.call(choice), std::nullopt);
  EXPECT_EQ(choice.way(), way_number(0)) << "not on the word of one call";
  EXPECT_EQ(product.timed, 4);
  EXPECT_EQ(product.compared, 1);
  EXPECT_EQ(product.call(choice), way_number(2));
  EXPECT_EQ(choice.way(), way_number(2));
  EXPECT_EQ(product.compared, 2);
  EXPECT_EQ(product.call(choice), std::nullopt);
  EXPECT_EQ(product.listed, 1);
  EXPECT_EQ(product.compared, 2);
}

TEST(ProductSearch, AWayOfOtherBitsIsNeverTakenHoweverFast) {
  Product product({{1e-3}, {.seconds = 0.1e-3, .off_by = 0.5}, {0.8e-3}});
  ProductChoice choice = choice_of();
  product.call(choice);
  EXPECT_EQ(product.call(choice), way_number(2));

  Product none({{1e-3}, {.seconds = 0.1e-3, .off_by = 0.5}, {.seconds = 0.2e-3, .off_by = INFINITY}});
  ProductChoice stays = choice_of();
  EXPECT_EQ(none.call(stays), way_number(0)) << "that there is no better one is worth keeping too";
  EXPECT_EQ(stays.way(), way_number(0));
  EXPECT_FALSE(stays.is_open());
}

TEST(ProductSearch, AWayThatDiffersOnLaterDataIsGivenUp) {
  const Manner wrong{.seconds = 0.1e-3, .is_wrong_later = true, .off_by = 0.5};
  Product product({{1e-3}, wrong});
  ProductChoice choice = choice_of();
  EXPECT_EQ(product.call(choice), std::nullopt);
  EXPECT_EQ(product.call(choice), way_number(0));
  EXPECT_EQ(choice.way(), way_number(0));

  Product with_another({{1e-3}, wrong, {0.5e-3}});
  ProductChoice next = choice_of();
  EXPECT_EQ(with_another.call(next), std::nullopt);
  EXPECT_EQ(with_another.call(next), std::nullopt);
  EXPECT_EQ(next.way(), way_number(0));
  EXPECT_EQ(with_another.call(next), way_number(2));
}

TEST(ProductSearch, AWayThatFailsIsPassedOver) {
  Product product({{1e-3}, {.seconds = 0.1e-3, .fails = true}, {.cannot_be_timed = true}, {0.6e-3}});
  ProductChoice choice = choice_of();
  product.call(choice);
  EXPECT_EQ(product.call(choice), way_number(3));
}

TEST(ProductSearch, TheFirstChoiceStaysWhereNothingIsClearlyFaster) {
  Product product({{1e-3}, {0.98e-3}, {1e-3}, {2e-3}});
  ProductChoice choice = choice_of();
  EXPECT_EQ(product.call(choice), way_number(0));
  EXPECT_EQ(product.compared, 0);
}

TEST(ProductSearch, NothingIsProvenByZerosEqualRowsOrWhatIsNotFinite) {
  for (const float all : {0.0f, 3.0f, float(INFINITY), float(NAN)}) {
    Product product({{1e-3}, {0.5e-3}});
    ProductChoice choice = choice_of();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(product.call(choice, all), std::nullopt);
    EXPECT_EQ(product.timed, 0);
    product.call(choice);
    EXPECT_EQ(product.call(choice, all), std::nullopt);
    EXPECT_EQ(choice.way(), way_number(0));
    EXPECT_EQ(product.call(choice), way_number(1));
  }
}

TEST(ProductSearch, ItEndsWhereNothingCanBeTried) {
  Product product({{1e-3}, {0.5e-3}});
  ProductChoice zeros = choice_of(), no_room = choice_of(), never_timed = choice_of(), never_listed = choice_of();
  for (int i = 0; i < kMostTrials; ++i) {
    EXPECT_TRUE(zeros.is_open() && no_room.is_open() && never_timed.is_open());
    EXPECT_EQ(product.call(zeros, 0.0f), std::nullopt);
    no_room.pass();
    Product broken({{.cannot_be_timed = true}, {0.5e-3}});
    EXPECT_EQ(broken.call(never_timed), std::nullopt);
    Product silent({{1e-3}, {0.5e-3}});
    silent.cannot_list = true;
    EXPECT_EQ(silent.call(never_listed), std::nullopt);
  }
  for (const ProductChoice& choice : {zeros, no_room, never_timed, never_listed}) {
    EXPECT_FALSE(choice.is_open());
    EXPECT_EQ(choice.way(), way_number(0));
  }
}

// A step of fp16 whose gradients overflow, with a call in every layer: the search must not end there.
TEST(ProductSearch, CallsThatProveNothingAreLeftOutMoreAndMore) {
  Product product({{1e-3}, {0.5e-3}});
  ProductChoice choice = choice_of();
  std::string tried;
  for (int call = 0; call < 20; ++call) {
    tried += choice.is_due() ? 'x' : '.';
    if (tried.back() == 'x') product.call(choice, 0.0f);
  }
  EXPECT_EQ(tried, "x.x..x....x........x");
  EXPECT_TRUE(choice.is_open());
}

TEST(ProductSearch, AProductTooSmallToProveAnythingKeepsTheFirstChoice) {
  EXPECT_FALSE(choice_of(kLeastOutputs - 1).is_open());
  EXPECT_TRUE(choice_of(kLeastOutputs).is_open());
}

TEST(ProductSearch, ALongProductIsTriedInFewWays) {
  Product product({{0.06}, {0.06}, {0.06}, {0.06}, {0.06}, {0.06}, {0.06}, {0.06}, {0.01}});
  ProductChoice choice = choice_of();
  product.call(choice);
  EXPECT_EQ(product.timed, 5);
}

TEST(ProductSearch, WhatWasFoundEarlierIsProvenAgainWithoutASearch) {
  Product product({{1e-3}, {0.5e-3}});
  ProductChoice right = choice_of(1 << 20, way_number(1));
  EXPECT_EQ(product.call(right), std::nullopt);
  EXPECT_EQ(right.way(), way_number(0));
  EXPECT_EQ(product.call(right), way_number(1));
  EXPECT_EQ(right.way(), way_number(1));
  EXPECT_EQ(product.timed, 0);

  Product changed({{1e-3}, {.seconds = 0.1e-3, .off_by = 0.5}, {0.5e-3}});
  ProductChoice wrong = choice_of(1 << 20, way_number(1));
  EXPECT_EQ(changed.call(wrong), std::nullopt) << "searched anew";
  EXPECT_EQ(wrong.way(), way_number(0));
  EXPECT_EQ(changed.call(wrong), way_number(2));

  EXPECT_FALSE(choice_of(1 << 20, way_number(0)).is_open()) << "the first choice was the best: nothing is to be done";
}

// Every element of a tensor whose rows lie apart, in each type.
template <class T>
void expect_bits_are_compared() {
  constexpr int64_t kRows = gpu::kMostBitsReports + 7, kCols = 300, kStride = 301;
  std::vector<T> a, b;
  for (int64_t i = 0; i < kRows * kStride; ++i) a.emplace_back(float(i % 5));
  b = a;
  const auto tensor = [](std::vector<T>& x) {
    Tensor t(x.data(), dtype_of<T>, {kRows, kCols});
    t.row_stride = kStride;
    return t;
  };
  const auto compare = [&](const Tensor& anyway = {}) {
    testing::HostLauncher launcher;
    std::vector<gpu::BitsReport> reports(size_t{gpu::kMostBitsReports});
    return gpu::compare_bits(launcher, tensor(a), tensor(b), anyway, reports.data());
  };
  int64_t zeros = 0, rows_unlike_first = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    rows_unlike_first += i * kStride % 5 == 0 ? 0 : 1;
    for (int64_t j = 0; j < kCols; ++j) zeros += (i * kStride + j) % 5 == 0 ? 1 : 0;
  }
  EXPECT_EQ(compare().apart, 0);
  EXPECT_EQ(compare().wild, 0);
  EXPECT_EQ(compare().telling, kRows * kCols - zeros);
  EXPECT_EQ(compare(tensor(b)).telling, 0) << "a sum to which nothing was added";
  std::vector<T> bias(a.begin(), a.begin() + kCols);
  EXPECT_EQ(compare(Tensor(bias.data(), dtype_of<T>, {kCols})).telling, rows_unlike_first * kCols);
  a[kStride - 1] = T(float(NAN));  // between two rows
  EXPECT_EQ(compare().apart, 0);
  EXPECT_EQ(compare().wild, 0);
  const auto last = size_t((kRows - 1) * kStride + kCols - 1);
  for (const float x : {-float(a[last]), 1024.0f, float(NAN)}) {
    b[last] = T(x);
    EXPECT_EQ(compare().apart, float(a[last]) == x ? 0 : 1) << x;
  }
  a[0] = T(0.0f), b[0] = T(-0.0f);
  a[1] = T(float(INFINITY)), b[1] = a[1];
  EXPECT_EQ(compare().apart, 2);
  EXPECT_EQ(compare().wild, 1);
}

TEST(BitsCompared, EveryElementCounts) {
  expect_bits_are_compared<float>();
  expect_bits_are_compared<bf16>();
  expect_bits_are_compared<f16>();
}

}  // namespace
}  // namespace weft
