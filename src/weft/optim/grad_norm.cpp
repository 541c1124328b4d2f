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
  for (const ParamStore::GradRange& range : store.grad_ranges()) {
    for (size_t s = 0; s < range.shards.size(); ++s) {
      const Run& shard = range.shards[s];
      if (shard.count == 0) continue;
      const int64_t first = shard.first / kSumLeaf;
      for (const TreeNode& node : tree_cover(leaves_of(range.size), {first, leaves_of(shard.end()) - first})) {
        const int64_t begin = node.first() * kSumLeaf;
        const int64_t end = std::min(shard.end(), begin + (kSumLeaf << node.level));
        nodes_.push_back({sizes_.size(), node, int64_t(s), {begin, end - begin}});
      }
    }
    sizes_.push_back(range.size);
    held_.push_back(range.held);
    positions_.push_back(range.position);
  }
  squares_ = arena.alloc(DType::f64, {int64_t(nodes_.size())});
  sums_ = arena.alloc(DType::f64, {int64_t(sizes_.size())});
  units_ = arena.alloc(DType::f64, {num_positions});
}

double GradNorm::wait_measure(Backend& backend) {
  const std::vector<ParamStore::GradRange> ranges = store_.grad_ranges();
  Communicator& shards = *store_.mesh().shards;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    const ParamStore::GradRange& range = ranges[n.range];
    if (n.shard != shards.rank()) continue;
    const Run& here = range.shards[size_t(n.shard)];
    backend.run(SumSquares{.x = range.grad.slice_rows(n.run.first - here.first, n.run.count),
                           .out = squares_.slice_rows(int64_t(i), 1)});
  }
  backend.wait_all();
  if (squares_.data == nullptr) return 0;
  auto* squares = squares_.as<double>();
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].shard != shards.rank()) squares[i] = 0;  // another rank has it: the sum is exact
  shards.all_reduce(squares_).wait();
  Communicator& tp = store_.mesh()[Axis::tp];
  std::vector<std::vector<NodeSum>> of_range(sizes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) of_range[nodes_[i].range].push_back({nodes_[i].at, squares[i]});
  for (size_t r = 0; r < sizes_.size(); ++r)
    sums_.as<double>()[r] = counts(held_[r], tp) ? tree_sum(leaves_of(sizes_[r]), of_range[r]) : 0;
  tp.all_reduce(sums_).wait();
  auto* units = units_.as<double>();
  std::fill_n(units, units_.rows(), 0.0);
  for (size_t r = 0; r < sizes_.size(); ++r) units[positions_[r]] += sums_.as<double>()[r];
  store_.mesh().pp->all_reduce(units_).wait();  // each is of one stage
  return std::sqrt(std::accumulate(units, units + units_.rows(), 0.0));
}

// Of what this rank keeps of each piece of each weight, added over the ranks that keep the rest.
template <class Op>
std::vector<GradNorm::Entry> GradNorm::measure_parts(Backend& backend, Arena& scratch) const {
  Scope temporaries(scratch);
  Communicator& tp = store_.mesh()[Axis::tp];
  std::vector<Entry> entries;
  std::vector<double> sums;
  Tensor out = scratch.alloc(DType::f64, {1});
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
      backend.run(Op{.x = block.grad, .out = out});
      backend.wait_all();
      sums[first + size_t(block.piece)] += *out.as<double>();
    }
  }
  const Tensor all{sums.data(), DType::f64, {int64_t(sums.size())}};
  store_.mesh().shards->all_reduce(all).wait();
  tp.all_reduce(all).wait();
  for (size_t i = 0; i < entries.size(); ++i) entries[i].squares = sums[i];
  return entries;
}

std::vector<GradNorm::Entry> GradNorm::wait_measure_parts(Backend& backend, Arena& scratch) const {
  return measure_parts<SumSquares>(backend, scratch);
}

std::string GradNorm::wait_first_nonfinite(Backend& backend, Arena& scratch) const {
  for (const Entry& e : measure_parts<CountNonfinite>(backend, scratch)) {
    if (e.squares == 0) continue;
    const int64_t width = e.param->spec().shape.elements() / e.param->spec().shape[0];
    return fmt::format("gradient of {} (rows {} to {}): {} of {} values are not finite", e.param->spec().name,
                       e.first_row, e.first_row + e.rows - 1, int64_t(e.squares), e.rows * width);
  }
  return "";
}

}  // namespace weft
