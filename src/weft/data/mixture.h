// Which source each sample of a weighted mixture is from.
//   p  share of a source, all shares together 1
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

// Deals samples 0, 1, 2, ... to sources, evenly mixed: after any k samples, each source has had p k of them to within
// 1 + log2(sources), and p k in the long run. A pure function in O(log(sources)): a binary tree of splits in two.
class Mixture {
 public:
  // Weights that are finite and at least 0, some above 0; only their ratios count. Throws ConfigError.
  explicit Mixture(const std::vector<double>& weights);

  struct Turn {
    size_t source;
    int64_t index;  // how many samples the source had before
  };
  Turn operator()(int64_t sample) const;

 private:
  struct Node {  // sources [first, last)
    size_t first, last, middle;
    uint64_t left;  // share of [first, middle) in this node, in 2^-63
  };
  size_t split(const std::vector<double>& weights, size_t first, size_t last);

  // In depth-first order: the left child of node n is n + 1, the right one n + 2 (middle - first), for a tree over m
  // sources has 2 m - 1 nodes.
  std::vector<Node> nodes_;
};

}  // namespace weft
