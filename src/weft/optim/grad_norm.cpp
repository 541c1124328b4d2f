#include "weft/optim/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft {
namespace {

int64_t leaves_of(int64_t elements) { return (elements + kSumLeaf - 1) / kSumLeaf; }

// What tensor-parallel ranks hold alike is counted once: by the first.
bool counts(Spmd held, Communicator& tp) { return held == Spmd::Shard0 || held == Spmd::Shard1 || tp.rank() == 0; }

}  // namespace

GradNorm::GradNorm(const ParamStore& store, Arena& arena, int64_t num_positions) : store_(store) {
  const bool sharded = store.mesh().shards->size() > 1;
  int64_t nodes = 0;
  for (const ParamStore::GradRange& range : store.grad_ranges()) {
    ranges_.push_back({leaves_of(range.size), range.held, range.position});
    nodes += sharded ? std::max(1, 2 * (tree_root(ranges_.back().leaves).level - 1)) : 1;
  }
  squares_ = arena.alloc(DType::f64, {nodes});
  if (sharded) theirs_ = arena.alloc(DType::f64, {nodes});
  sums_ = arena.alloc(DType::f64, {int64_t(ranges_.size())});
  units_ = arena.alloc(DType::f64, {num_positions});
  one_ = arena.alloc(DType::f64, {1});
}

double GradNorm::wait_measure(Backend& backend) {
  const std::vector<ParamStore::GradRange> ranges = store_.grad_ranges();
  const ProcessMesh& mesh = store_.mesh();
  sum_own(backend, ranges);
  join_shards(ranges);
  const bool dry = units_.data == nullptr;
  for (size_t r = 0; r < ranges_.size() && !dry; ++r) {  // zero on all ranks but one: the sums over them are exact
    const bool speaks = mesh.shards->rank() == 0 && counts(ranges_[r].held, mesh[Axis::tp]);
    sums_.as<double>()[r] = speaks ? squares_.as<double>()[r] : 0;
  }
  mesh.shards->all_reduce(sums_).wait();
  mesh[Axis::tp].all_reduce(sums_).wait();
  auto* units = units_.as<double>();
  if (!dry) {
    std::fill_n(units, units_.rows(), 0.0);
    for (size_t r = 0; r < ranges_.size(); ++r) units[ranges_[r].position] += sums_.as<double>()[r];
  }
  mesh.pp->all_reduce(units_).wait();  // each is of one stage
  return dry ? 0 : std::sqrt(std::accumulate(units, units + units_.rows(), 0.0));
}

std::vector<TreeNode> GradNorm::nodes_of(const ParamStore::GradRange& range, int64_t shard, int64_t num_shards) const {
  const Run kept = range.kept(shard, num_shards);
  const int64_t first = kept.first / kSumLeaf;
  if (kept.count == 0) return {};
  return tree_cover(leaves_of(range.size), {first, leaves_of(kept.end()) - first});
}

void GradNorm::sum_own(Backend& backend, const std::vector<ParamStore::GradRange>& ranges) {
  const int64_t shard = store_.mesh().shards->rank();
  int64_t i = 0;
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
void GradNorm::join_shards(const std::vector<ParamStore::GradRange>& ranges) {
  Communicator& shards = *store_.mesh().shards;
  const int64_t n = shards.size(), me = shards.rank();
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
      if (count > 0) shards.send(squares_.slice_rows(0, count), int(me - half)).wait();
      return;
    }
    if (count == 0) continue;
    shards.recv(theirs_.slice_rows(0, count), int(other)).wait();
    if (squares_.data != nullptr) join(nodes(me, half, &kept), theirs);
  }
}

void GradNorm::join(const std::vector<std::vector<TreeNode>>& mine, const std::vector<std::vector<TreeNode>>& theirs) {
  std::vector<double> joined;
  const double *m = squares_.as<double>(), *t = theirs_.as<double>();
  for (size_t r = 0; r < ranges_.size(); ++r) {
    std::vector<NodeSum> all;
    for (const TreeNode& node : mine[r]) all.push_back({node, *m++});
    for (const TreeNode& node : theirs[r]) all.push_back({node, *t++});
    for (const NodeSum& n : tree_join(ranges_[r].leaves, all)) joined.push_back(n.sum);
  }
  std::copy(joined.begin(), joined.end(), squares_.as<double>());
}

// Of what this rank keeps of each piece of each weight, added over the ranks that keep the rest.
template <class Op>
std::vector<GradNorm::Entry> GradNorm::measure_parts(Backend& backend) const {
  Communicator& tp = store_.mesh()[Axis::tp];
  std::vector<Entry> entries;
  std::vector<double> sums;
  for (const Param* p : store_.params()) {
    const size_t first = entries.size();
    int64_t row = 0;
    const bool by_columns = p->spec().place[Axis::tp] == Spmd::Shard1;
    for (size_t i = 0; i < p->pieces().size(); ++i) {
      const int64_t rows = by_columns || p->spec().parts.empty() ? p->spec().shape[0] : p->spec().parts[i].size;
      entries.push_back({p, row, rows});
      row += rows;
    }
    sums.resize(entries.size());
    for (const ParamStore::Stored& block : store_.stored(*p)) {
      if (!counts(p->pieces()[size_t(block.piece)].held, tp)) continue;
      backend.run(Op{.x = block.grad, .out = one_});
      backend.wait_all();
      sums[first + size_t(block.piece)] += *one_.as<double>();
    }
  }
  const Tensor all{sums.data(), DType::f64, {int64_t(sums.size())}};
  store_.mesh().shards->all_reduce(all).wait();
  tp.all_reduce(all).wait();
  for (size_t i = 0; i < entries.size(); ++i) entries[i].squares = sums[i];
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
