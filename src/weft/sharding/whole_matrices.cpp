#include "weft/sharding/whole_matrices.h"

#include <algorithm>

namespace weft {
namespace {

bool by_columns(const ParamSpec& spec) { return spec.place.tp() == Spmd::Shard1; }

double work_of(const WholeMatrix& m) {
  return double(m.rows.count) * double(m.cols.count) * double(std::min(m.rows.count, m.cols.count));
}

struct Place {
  int member, tp;  // of the group, and of the ranks that cut its matrices
};

// One matrix for each of the ranks, or fewer: what is on its way at the same time.
class Round {
 public:
  Round(Backend& backend, const ParamStore& store, const ReplicaGroup& group, Arena& scratch,
        std::span<const WholeMatrix> matrices)
      : backend_(backend), store_(store), group_(group), mesh_(store.mesh()), scratch_(scratch), matrices_(matrices) {}

  void run(const MatrixFunction& f) {
    Scope whole(scratch_);
    for (size_t i = 0; i < matrices_.size(); ++i)
      if (int(i) != here()) send_part(matrices_[i], owner_of(int(i)));
    if (here() < int(matrices_.size())) {
      const WholeMatrix& mine = matrices_[size_t(here())];
      const Tensor x = scratch_.alloc(store_.precision().stat, {mine.rows.count, mine.cols.count});
      gather(mine, x);
      f(x);
      give(mine, x);
    }
    for (Work& w : parts_) w.wait();
    for (size_t i = 0; i < matrices_.size(); ++i)
      if (int(i) != here()) receive_result(matrices_[i], owner_of(int(i)));
    for (Work& w : results_) w.wait();
  }

  static int num_owners(const ReplicaGroup& group) { return group.ranks.all->size() * group.tp->size(); }

 private:
  int num_tp() const { return group_.tp->size(); }
  int num_shards() const { return group_.ranks.shards->size(); }
  Place place() const { return {group_.ranks.all->rank(), group_.tp->rank()}; }
  int here() const { return place().member * num_tp() + place().tp; }
  CutRanks cut_at(int tp) const {
    CutRanks at = group_.cut();
    at.tp.rank = tp;
    return at;
  }
  Place owner_of(int matrix) const { return {matrix / num_tp(), matrix % num_tp()}; }
  int world_rank(Place at) const {
    const MeshPlace me = place_of(mesh_.sizes, mesh_.world->rank());
    MeshPlace there = place_of_member(mesh_.sizes, me, group_.set, at.member);
    there.tp = at.tp;
    return rank_at(mesh_.sizes, there);
  }
  // Whether a rank sends what it keeps: one of each set of shards, and of equal tensor-parallel ranks.
  bool contributes(const WholeMatrix& m, Place at, Place owner) const {
    return at.member / num_shards() == owner.member / num_shards() &&
           (is_cut(m.param->parts()[m.part].held) || at.tp == owner.tp);
  }

  void send_part(const WholeMatrix& m, Place owner) {
    const Tensor part = store_.kept_gradient(*m.param, m.part);
    if (part && contributes(m, place(), owner)) parts_.push_back(mesh_.world->send(part, world_rank(owner)));
  }
  void receive_result(const WholeMatrix& m, Place owner) {
    const Tensor part = store_.kept_gradient(*m.param, m.part);
    if (part) mesh_.world->recv(part, world_rank(owner)).wait();
  }

  // Where of a matrix's blocks, one behind the other, lies what a rank keeps; none where that is nothing. Blocks of
  // rows make the matrix itself.
  Tensor slice_of(const WholeMatrix& m, const Tensor& blocks, Place at) const {
    const HeldPart block = held_parts(m.param->spec(), cut_at(at.tp))[m.part];
    const Run run = store_.kept(*m.param, m.part, cut_at(at.tp), at.member % num_shards());
    if (run.count == 0) return {};
    const int64_t first = by_columns(m.param->spec()) ? (block.cols.first - m.cols.first) * m.rows.count
                                                      : (block.rows.first - m.rows.first) * m.cols.count;
    return blocks.slice_rows(first + run.first, run.count);
  }
  Tensor alloc_blocks(const WholeMatrix& m, const Tensor& x) {
    const Shape flat{x.elements()};
    return by_columns(m.param->spec()) && num_tp() > 1 ? scratch_.alloc(x.dtype, flat) : x.reshape(flat);
  }
  // Calls f(columns of x, the block that holds them) where blocks are of columns and lie apart from x.
  template <class F>
  void for_each_column_block(const WholeMatrix& m, const Tensor& x, const Tensor& blocks, const F& f) const {
    if (!by_columns(m.param->spec()) || num_tp() == 1) return;
    for (int t = 0; t < num_tp(); ++t) {
      const Run cols = held_parts(m.param->spec(), cut_at(t))[m.part].cols;
      f(x.slice_cols(cols.first, cols.count),
        blocks.slice_rows(cols.first * x.rows(), cols.count * x.rows()).reshape({x.rows(), cols.count}));
    }
  }
  template <class F>
  void for_each_place(const F& f) const {
    for (int member = 0; member < group_.ranks.all->size(); ++member)
      for (int tp = 0; tp < num_tp(); ++tp) f(Place{member, tp}, member == place().member && tp == place().tp);
  }

  void gather(const WholeMatrix& m, const Tensor& x) {
    Scope staging(scratch_);
    const Tensor blocks = alloc_blocks(m, x);
    for_each_place([&](Place at, bool self) {
      const Tensor to = slice_of(m, blocks, at);
      if (!to || !contributes(m, at, place())) return;
      if (self)
        backend_.run(Copy{.from = store_.kept_gradient(*m.param, m.part), .to = to});
      else
        mesh_.world->recv(to, world_rank(at)).wait();
    });
    for_each_column_block(m, x, blocks, [&](const Tensor& columns, const Tensor& block) {
      backend_.run(Copy{.from = block, .to = columns});
    });
  }

  // The blocks stay in scratch until the round ends: others may still read them.
  void give(const WholeMatrix& m, const Tensor& x) {
    const Tensor blocks = alloc_blocks(m, x);
    for_each_column_block(m, x, blocks, [&](const Tensor& columns, const Tensor& block) {
      backend_.run(Copy{.from = columns, .to = block});
    });
    for_each_place([&](Place at, bool self) {
      const Tensor from = slice_of(m, blocks, at);
      if (!from) return;
      if (self)
        backend_.run(Copy{.from = from, .to = store_.kept_gradient(*m.param, m.part)});
      else
        results_.push_back(mesh_.world->send(from, world_rank(at)));
    });
  }

  Backend& backend_;
  const ParamStore& store_;
  const ReplicaGroup& group_;
  const ProcessMesh& mesh_;
  Arena& scratch_;
  std::span<const WholeMatrix> matrices_;
  std::vector<Work> parts_, results_;
};

}  // namespace

std::vector<WholeMatrix> whole_matrices(const ParamStore& store, const ReplicaGroup& group) {
  std::vector<WholeMatrix> all;
  for (const Param* p : store.params()) {
    const ParamSpec& spec = p->spec();
    if (!spec.linear || &store.group_of(*p) != &group) continue;
    for (size_t i = 0; i < p->parts().size(); ++i)
      if (p->parts()[i].rows.count > 0)  // else ranks of other experts have it
        all.push_back({.param = p, .part = i, .rows = p->parts()[i].part_rows, .cols = {0, spec.shape[1]}});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const WholeMatrix& a, const WholeMatrix& b) { return work_of(a) > work_of(b); });
  return all;
}

std::vector<WholeMatrix> matrices_of(const std::vector<WholeMatrix>& all, int place, int places) {
  std::vector<WholeMatrix> taken;
  for (size_t i = size_t(place); i < all.size(); i += size_t(places)) taken.push_back(all[i]);
  return taken;
}

void wait_replace_whole(Backend& backend, const ParamStore& store, Arena& scratch, const MatrixFunction& f) {
  for (const ReplicaGroup* group : store.groups()) {
    const std::vector<WholeMatrix> all = whole_matrices(store, *group);
    const size_t owners = size_t(Round::num_owners(*group));
    for (size_t first = 0; first < all.size(); first += owners)
      Round(backend, store, *group, scratch, std::span(all).subspan(first, std::min(owners, all.size() - first)))
          .run(f);
  }
}

}  // namespace weft
