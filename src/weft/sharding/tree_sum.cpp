#include "weft/sharding/tree_sum.h"

#include <algorithm>
#include <bit>

#include "weft/base/error.h"

namespace weft {

TreeNode tree_root(int64_t leaves) { return {int(std::bit_width(uint64_t(std::max<int64_t>(leaves, 1) - 1))), 0}; }

int TreeSum::take() {
  if (free_.empty()) free_.push_back(num_buffers_++);
  const int buffer = free_.back();
  free_.pop_back();
  peak_ = std::max(peak_, ++in_use_);
  return buffer;
}

void TreeSum::settle(TreeNode node, int buffer, const std::function<void(int, int)>& add) {
  WEFT_CHECK(node.index >= 0 && node.first() < num_leaves_, "node {} of level {} in a tree of {} leaves", node.index,
             node.level, num_leaves_);
  for (; node != tree_root(num_leaves_); node = node.parent()) {
    if (node.sibling().first() >= num_leaves_) continue;  // absent: promoted as it is
    const auto other =
        std::find_if(held_.begin(), held_.end(), [&](const Held& h) { return h.node == node.sibling(); });
    if (other == held_.end()) break;
    add(other->buffer, buffer);
    free_.push_back(buffer);
    --in_use_;
    buffer = other->buffer;
    held_.erase(other);
  }
  held_.push_back({node, buffer});
}

std::vector<TreeSum::Held> TreeSum::held() const {
  std::vector<Held> all = held_;
  std::sort(all.begin(), all.end(), [](const Held& a, const Held& b) { return a.node.first() < b.node.first(); });
  return all;
}

int TreeSum::root() const {
  WEFT_CHECK(held_.size() == 1 && held_[0].node == tree_root(num_leaves_), "a sum over {} leaves is not complete",
             num_leaves_);
  return held_[0].buffer;
}

void TreeSum::clear() {
  for (const Held& h : held_) free_.push_back(h.buffer);
  in_use_ -= int(held_.size());
  held_.clear();
}

// The largest sub-trees that fit, from the first leaf on. Behind the last leaf of all, what is absent costs nothing.
std::vector<TreeNode> tree_cover(int64_t num_leaves, LeafRun run) {
  const int root = tree_root(num_leaves).level;
  const int64_t last = run.first + run.count, end = last == num_leaves ? int64_t{1} << root : last;
  std::vector<TreeNode> nodes;
  for (int64_t at = run.first; at < last;) {
    const int aligned = at == 0 ? root : std::countr_zero(uint64_t(at));
    const int fits = int(std::bit_width(uint64_t(end - at))) - 1;
    const int level = std::min(aligned, fits);
    nodes.push_back({level, at >> level});
    at += int64_t{1} << level;
  }
  return nodes;
}

// While the last of `run` is yet to come, the leaves so far hold as many buffers as their cover has nodes: up to a
// multiple of 2^h in the run, and on from there to less than 2^h leaves beyond.
int tree_buffers(int64_t num_leaves, LeafRun run) {
  const int64_t last = run.first + run.count - 1;
  int most = 0;
  for (int h = 0; h <= tree_root(num_leaves).level && run.count > 1; ++h) {
    const int64_t middle = ((run.first >> h) | 1) << h;
    if ((run.first >> h) % 2 != 0 || middle > last) continue;
    const int64_t beyond = std::min((int64_t{1} << h) - 1, last - middle);
    most = std::max(most, std::popcount(uint64_t(middle - run.first)) + int(std::bit_width(uint64_t(beyond + 1))) - 1);
  }
  return run.count == 0 ? 0 : most + 1;
}

double tree_sum(const std::vector<double>& leaves) {
  if (leaves.empty()) return 0;
  std::vector<double> level = leaves;
  for (; level.size() > 1; level.resize((level.size() + 1) / 2)) {
    for (size_t i = 0; i < level.size(); i += 2)
      level[i / 2] = i + 1 < level.size() ? level[i] + level[i + 1] : level[i];
  }
  return level[0];
}

std::vector<NodeSum> tree_join(int64_t num_leaves, const std::vector<NodeSum>& nodes) {
  TreeSum tree(num_leaves);
  std::vector<double> sums(nodes.size());
  for (const NodeSum& n : nodes) {
    const auto buffer = size_t(tree.take());
    sums[buffer] = n.sum;
    tree.settle(n.node, int(buffer), [&](int into, int from) { sums[size_t(into)] += sums[size_t(from)]; });
  }
  std::vector<NodeSum> left;
  for (const TreeSum::Held& h : tree.held()) left.push_back({h.node, sums[size_t(h.buffer)]});
  return left;
}

}  // namespace weft
