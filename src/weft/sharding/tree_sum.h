// Sums whose bits depend on neither the number of ranks nor who computes what: a fixed binary tree over a global order.
//
// Node (level, index) covers leaves [index << level, (index + 1) << level). What lies beyond the last leaf is absent
// and adds nothing (not even zero), so any number of leaves has exactly one tree. IEEE addition commutes: only the
// shape of the tree matters.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace weft {

struct TreeNode {
  int level = 0;
  int64_t index = 0;
  bool operator==(const TreeNode&) const = default;
  int64_t first() const { return index << level; }
  TreeNode parent() const { return {level + 1, index / 2}; }
  TreeNode sibling() const { return {level, index ^ 1}; }
};
TreeNode tree_root(int64_t leaves);

// Consecutive leaves.
struct LeafRun {
  int64_t first, count;
};
// The nodes that the leaves of a run sum to without any other, in their order: one where the run is a sub-tree, and
// never more than 2 (level of the root - 1), or one.
std::vector<TreeNode> tree_cover(int64_t num_leaves, LeafRun run);

// Which buffers of a pool hold which nodes while leaves arrive, each exactly once, in any order. Knows no numbers: the
// caller adds buffers when told to, and a planner counts without any.
class TreeSum {
 public:
  explicit TreeSum(int64_t num_leaves) : num_leaves_(num_leaves) {}

  // An unused buffer for the next leaf's sum.
  int take();
  // The node whose sum is in `buffer` (a leaf, or what others have summed) is complete. Calls add(into, from) for each
  // addition that is now possible: buffer `into` += buffer `from`; `from` is free again.
  void settle(TreeNode node, int buffer, const std::function<void(int into, int from)>& add);
  struct Held {
    TreeNode node;
    int buffer;
  };
  // What is complete and waits for a sibling, in the order of the leaves.
  std::vector<Held> held() const;
  // The buffer that holds the sum of all leaves. WEFT_CHECK if some are missing.
  int root() const;
  // Forgets everything: the next sum begins.
  void clear();
  // Most buffers in use at once since construction.
  int peak() const { return peak_; }

 private:
  int64_t num_leaves_;
  std::vector<Held> held_;
  std::vector<int> free_;
  int num_buffers_ = 0, in_use_ = 0, peak_ = 0;
};

// The number of buffers that TreeSum needs for the leaves of a run that arrive in order.
int tree_buffers(int64_t num_leaves, LeafRun run);

// The sum of f(0) ... f(leaves - 1) as the tree adds it.
double tree_sum(const std::vector<double>& leaves);
struct NodeSum {
  TreeNode node;
  double sum;
};
// What is left of these nodes when all additions that they allow are done, in the order of the leaves: of nodes that
// cover all leaves once, the root.
std::vector<NodeSum> tree_join(int64_t num_leaves, const std::vector<NodeSum>& nodes);

}  // namespace weft
