#include "weft/sharding/tree_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>

#include "weft/base/error.h"

namespace weft {
namespace {

// Adds numbers of very different sizes, so that any other order of additions shows in the bits.
std::vector<float> uneven(int64_t n) {
  std::mt19937 gen(5);
  std::uniform_real_distribution<float> u(-1, 1);
  std::vector<float> x(size_t(n), 0.f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(u(gen), int(gen() % 40));
  return x;
}

float by_tree(const std::vector<float>& x, const std::vector<int64_t>& order, int* peak = nullptr) {
  TreeSum tree(int64_t(x.size()));
  std::vector<float> buffers(x.size() + 1);
  for (int64_t leaf : order) {
    const int b = tree.take();
    buffers[size_t(b)] = x[size_t(leaf)];
    tree.settle({0, leaf}, b, [&](int into, int from) { buffers[size_t(into)] += buffers[size_t(from)]; });
  }
  if (peak) *peak = tree.peak();
  return buffers[size_t(tree.root())];
}

TEST(TreeSum, TheOrderOfArrivalDoesNotChangeABit) {
  std::mt19937 gen(1);
  for (int64_t n : {1, 2, 3, 5, 6, 7, 8, 12, 33, 64}) {
    const auto x = uneven(n);
    std::vector<int64_t> order(size_t(n), 0);
    std::iota(order.begin(), order.end(), 0);
    const float in_order = by_tree(x, order);
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::shuffle(order.begin(), order.end(), gen);
      EXPECT_EQ(std::bit_cast<uint32_t>(by_tree(x, order)), std::bit_cast<uint32_t>(in_order)) << n;
    }
  }
}

TEST(TreeSum, OfDoublesEqualsTheTreeOfBuffers) {
  const std::vector<double> x{1e16, 1, -1e16, 1, 3};  // ((1e16 + 1) + (-1e16 + 1)) + 3
  EXPECT_EQ(tree_sum(x), ((1e16 + 1.0) + (-1e16 + 1.0)) + 3.0);
  EXPECT_EQ(tree_sum({}), 0);
}

TEST(TreeSum, KeepsAboutLog2Buffers) {
  EXPECT_EQ(tree_buffers(1, {0, 1}), 1);
  EXPECT_EQ(tree_buffers(2, {0, 2}), 2);
  EXPECT_EQ(tree_buffers(8, {0, 8}), 4);
  EXPECT_EQ(tree_buffers(1024, {0, 1024}), 11);
  int peak = 0;
  std::vector<int64_t> order(12);
  std::iota(order.begin(), order.end(), 0);
  by_tree(uneven(12), order, &peak);
  EXPECT_EQ(peak, tree_buffers(12, {0, 12}));
}

TEST(TreeSum, TheCoverAndTheBuffersOfARunAreWhatItsSumLeavesAndNeeds) {
  for (int64_t n : {1, 2, 3, 7, 8, 13, 32, 37})
    for (int64_t first = 0; first < n; ++first)
      for (int64_t count = 0; first + count <= n; ++count) {
        TreeSum tree(n);
        for (int64_t i = 0; i < count; ++i) tree.settle({0, first + i}, tree.take(), [](int, int) {});
        std::vector<TreeNode> left;
        for (const TreeSum::Held& h : tree.held()) left.push_back(h.node);
        const std::vector<TreeNode> cover = tree_cover(n, {first, count});
        EXPECT_EQ(cover, left) << n << " " << first << " " << count;
        EXPECT_EQ(tree_buffers(n, {first, count}), tree.peak()) << n << " " << first << " " << count;
        EXPECT_LE(int(cover.size()), std::max(1, 2 * (tree_root(n).level - 1)));
      }
}

// Ranks that sum runs of their own, and what they are left with afterwards, are the same tree.
TEST(TreeSum, RunsOfLeavesMeetInTheSameTree) {
  for (int64_t each : {1, 2, 3, 5, 8})
    for (int64_t ranks : {1, 2, 3, 4, 7}) {
      const int64_t n = each * ranks;
      const auto x = uneven(n);
      std::vector<int64_t> order(size_t(n), 0);
      std::iota(order.begin(), order.end(), 0);
      TreeSum top(n);
      std::vector<float> tops;
      std::vector<TreeNode> nodes;
      for (int64_t r = 0; r < ranks; ++r) {
        TreeSum tree(n);
        std::vector<float> buffers(size_t(tree_buffers(n, {r * each, each})));
        for (int64_t leaf = r * each; leaf < (r + 1) * each; ++leaf) {
          const int b = tree.take();
          buffers.at(size_t(b)) = x[size_t(leaf)];
          tree.settle({0, leaf}, b, [&](int into, int from) { buffers[size_t(into)] += buffers[size_t(from)]; });
        }
        const auto cover = tree_cover(n, {r * each, each});
        for (size_t i = 0; i < cover.size(); ++i) {
          EXPECT_EQ(tree.held()[i].node, cover[i]);
          tops.push_back(buffers[size_t(tree.held()[i].buffer)]);
          nodes.push_back(cover[i]);
        }
      }
      for (size_t i = 0; i < nodes.size(); ++i) EXPECT_EQ(top.take(), int(i));
      for (size_t i = 0; i < nodes.size(); ++i)
        top.settle(nodes[i], int(i), [&](int into, int from) { tops[size_t(into)] += tops[size_t(from)]; });
      EXPECT_EQ(std::bit_cast<uint32_t>(tops[size_t(top.root())]), std::bit_cast<uint32_t>(by_tree(x, order)))
          << each << " on each of " << ranks;
    }
}

TEST(TreeSum, AnIncompleteSumHasNoRoot) {
  TreeSum tree(2);
  tree.settle({0, 0}, tree.take(), [](int, int) {});
  EXPECT_THROW(tree.root(), CheckFailure);
}

}  // namespace
}  // namespace weft
