#include "weft/optim/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/optim/part_sums.h"

namespace weft {
namespace {

int64_t leaves_of(int64_t elements) { return (elements + kSumLeaf - 1) / kSumLeaf; }

// What tensor-parallel ranks hold alike is counted once: by the first.
bool counts(const ReplicaGroup& group, Spmd held) { return group.alike(held).rank == 0; }

}  // namespace

GradNorm::GradNorm(const ParamStore& store, Arena& arena, int64_t num_positions) : store_(store) {
  int64_t nodes = 0, ranges = 0;
  bool sharded = false;
  for (const ParamStore::GradRange& range : store.grad_ranges()) {
    if (groups_.empty() || groups_.back().ranks != range.group)
      groups_.push_back({.ranks = range.group, .first_range = size_t(ranges), .first_node = nodes});
    const bool shares = range.group->shard().size > 1;
    const int64_t of_range = shares ? std::max(1, 2 * (tree_root(leaves_of(range.size)).level - 1)) : 1;
    ++groups_.back().num_ranges;
    ++ranges;
    groups_.back().num_nodes += of_range;
    nodes += of_range;
    sharded = sharded || shares;
  }
  squares_ = arena.alloc(DType::f64, {nodes});
  if (sharded) theirs_ = arena.alloc(DType::f64, {nodes});
  sums_ = arena.alloc(DType::f64, {ranges});
  units_ = arena.alloc(DType::f64, {num_positions});
  one_ = arena.alloc(DType::f64, {1});
}

double GradNorm::wait_measure(Backend& backend) {
  const std::vector<ParamStore::GradRange> ranges = store_.grad_ranges();
  for (const Group& group : groups_)
    wait_sum(backend, group, GradRanges(ranges).subspan(group.first_range, group.num_ranges));
  const bool dry = units_.data == nullptr;
  auto* units = units_.as<double>();
  if (!dry) {
    std::fill_n(units, units_.rows(), 0.0);
    for (size_t r = 0; r < ranges.size(); ++r) units[ranges[r].position] += sums_.as<double>()[r];
  }
  store_.mesh().pp->all_reduce(units_).wait();  // each is of one stage
  return dry ? 0 : std::sqrt(std::accumulate(units, units + units_.rows(), 0.0));
}

// The sums of a group's ranges, on every rank.
void GradNorm::wait_sum(Backend& backend, const Group& group, GradRanges ranges) {
  sum_own(backend, group, ranges);
  join_shards(group, ranges);
  const Tensor sums = sums_.slice_rows(int64_t(group.first_range), int64_t(group.num_ranges));
  for (size_t r = 0; r < group.num_ranges && sums.data != nullptr; ++r) {  // zero on ranks that add nothing
    const bool speaks = group.ranks->shard().rank == 0 && counts(*group.ranks, ranges[r].held);
    sums.as<double>()[r] = speaks ? squares_.as<double>()[group.first_node + int64_t(r)] : 0;
  }
  group.ranks->wait_sum_over_keepers(sums);
}

std::vector<TreeNode> GradNorm::nodes_of(const ParamStore::GradRange& range, int64_t shard, int64_t num_shards) const {
  const Run kept = range.kept(shard, num_shards);
  const int64_t first = kept.first / kSumLeaf;
  if (kept.count == 0) return {};
  return tree_cover(leaves_of(range.size), {first, leaves_of(kept.end()) - first});
}

void GradNorm::sum_own(Backend& backend, const Group& group, GradRanges ranges) {
  const int64_t shard = group.ranks->shard().rank;
  int64_t i = group.first_node;
  for (const ParamStore::GradRange& range : ranges) {
    const Run here = range.kept(shard);
    for (const TreeNode& node : nodes_of(range, shard, 1)) {
      const int64_t first = node.first() * kSumLeaf, end = std::min(here.end(), first + (kSumLeaf << node.level));
      backend.run(
          SumSquares{.x = range.grad.slice_rows(first - here.first, end - first), .out = squares_.slice_rows(i++, 1)});
    }
  }
  backend.wait_all();
}

// Neighbours, then pairs of neighbours, and so on: the first shard of each group gets the nodes of the other half. In
// the end the first of all has the root of each range.
void GradNorm::join_shards(const Group& group, GradRanges ranges) {
  Communicator& shards = *group.ranks->ranks.shards;
  const int64_t n = shards.size(), me = shards.rank();
  const Tensor squares = squares_.slice_rows(group.first_node, group.num_nodes);
  const auto nodes = [&](int64_t shard, int64_t num_shards, int64_t* count) {
    std::vector<std::vector<TreeNode>> of_ranges;
    for (const ParamStore::GradRange& range : ranges) {
      of_ranges.push_back(nodes_of(range, shard, num_shards));
      *count += int64_t(of_ranges.back().size());
    }
    return of_ranges;
  };
  for (int64_t half = 1; half < n; half *= 2) {
    const bool gives = me % (2 * half) != 0;
    const int64_t other = gives ? me : me + half;
    if (other >= n) continue;
    int64_t count = 0, kept = 0;
    const auto theirs = nodes(other, std::min(half, n - other), &count);
    if (gives) {
      if (count > 0) shards.send(squares.slice_rows(0, count), int(me - half)).wait();
      return;
    }
    if (count == 0) continue;
    shards.recv(theirs_.slice_rows(0, count), int(other)).wait();
    if (squares.data != nullptr) join(group, ranges, nodes(me, half, &kept), theirs);
  }
}

void GradNorm::join(const Group& group, GradRanges ranges, const std::vector<std::vector<TreeNode>>& mine,
                    const std::vector<std::vector<TreeNode>>& theirs) {
  std::vector<double> joined;
  double* const squares = squares_.as<double>() + group.first_node;
  const double *m = squares, *t = theirs_.as<double>();
  for (size_t r = 0; r < group.num_ranges; ++r) {
    std::vector<NodeSum> all;
    for (const TreeNode& node : mine[r]) all.push_back({node, *m++});
    for (const TreeNode& node : theirs[r]) all.push_back({node, *t++});
    for (const NodeSum& n : tree_join(leaves_of(ranges[r].size), all)) joined.push_back(n.sum);
  }
  std::copy(joined.begin(), joined.end(), squares);
}

// Measures what this rank keeps of each part of each weight, and adds it over the ranks that keep the rest.
template <class Op>
std::vector<GradNorm::Entry> GradNorm::measure_parts(Backend& backend) const {
  std::vector<Entry> entries;
  const auto add = [&](const ParamStore::Stored& block, double* sum) {
    backend.run(Op{.x = block.grad, .out = one_});
    backend.wait_all();
    *sum += *one_.as<double>();
  };
  for (const PartSums& part : wait_sum_parts(store_, 1, add))
    entries.push_back({part.param, part.first_row, part.rows, part.sums[0]});
  return entries;
}

std::vector<GradNorm::Entry> GradNorm::wait_measure_parts(Backend& backend) const {
  return measure_parts<SumSquares>(backend);
}

std::string GradNorm::wait_first_nonfinite(Backend& backend) const {
  for (const Entry& e : measure_parts<CountNonfinite>(backend)) {
    if (e.squares == 0) continue;
    const int64_t width = e.param->spec().shape.elements() / e.param->spec().shape[0];
    return fmt::format("gradient of {} (rows {} to {}): {} of {} values are not finite", e.param->spec().name,
                       e.first_row, e.first_row + e.rows - 1, int64_t(e.squares), e.rows * width);
  }
  return "";
}

std::string GradNorm::wait_first_nonfinite_weight(Backend& backend) const {
  for (const Param* p : store_.params()) {
    if (p->spec().update == Update::nobody) continue;  // a frozen one is as it was read
    for (const ParamStore::Stored& block : store_.stored(*p)) {
      backend.run(CountNonfinite{.x = block.master, .out = one_});
      backend.wait_all();
      const auto count = int64_t(*one_.as<double>());
      if (count > 0) return fmt::format("{}: {} of {} values", p->spec().name, count, block.master.elements());
    }
  }
  return "";
}

}  // namespace weft
