#include "weft/sharding/param_store.h"

#include <algorithm>
#include <tuple>

namespace weft {
namespace {

int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

Run overlap(Run a, Run b) {
  const int64_t first = std::max(a.first, b.first), end = std::max(first, std::min(a.end(), b.end()));
  return {first, end - first};
}

}  // namespace

ParamStore::ParamStore(Precision precision, GradientOrder order, const ProcessMesh& mesh)
    : precision_(precision), order_(order), mesh_(mesh) {
  WEFT_CHECK(dp().size() == order.ranks && dp().rank() == order.rank, "data-parallel rank {} of {}, planned {} of {}",
             dp().rank(), dp().size(), order.rank, order.ranks);
  WEFT_CHECK(shards().size() == order.shards && (order.shards > 1) == (order.zero_stage > 0),
             "{} shards of a mesh for ZeRO stage {} over {}", shards().size(), order.zero_stage, order.shards);
  num_sums_ = order_.num_buffers();
  if (!order_.tree || order_.reduces_each()) return;
  for (int64_t r = 0; r < order_.ranks; ++r) {
    nodes_until_.push_back(all_nodes_.size());
    for (const TreeNode& node : tree_cover(order_.num_leaves(), order_.run_of(r))) all_nodes_.push_back(node);
  }
  nodes_until_.push_back(all_nodes_.size());
}

Param& ParamStore::add(ParamSpec spec) {
  pending_.push_back(all_.emplace_back(std::make_unique<Param>(std::move(spec), tp())).get());
  return *pending_.back();
}

Param& ParamStore::tie(Param& owner) {
  Param& p = add(owner.spec());
  p.tied_to_ = &owner;
  return p;
}

int ParamStore::close_unit(std::string name, int64_t position) {
  const int index = num_units();
  Unit& u = units_.emplace_back(Unit{.name = std::move(name), .position = position, .params = std::move(pending_)});
  for (const Param* p : u.params)
    WEFT_CHECK(p->spec().twin < 0 || u.params.size() == 1, "{} has a twin and shares unit {}", p->spec().name, u.name);
  pending_.clear();
  for (Param* p : u.params) p->unit_ = index;
  lay_out(u);
  u.tree = TreeSum(order_.num_leaves());
  if (order_.separate_ties()) make_mirrors(index);
  return index;
}

// Those that decay first, of these the linear ones; among them, what tensor-parallel ranks hold alike lies together.
// Offsets are the same on all of those ranks, so that what they must sum lies in the same shards.
void ParamStore::lay_out(Unit& u) {
  std::vector<Param*> owned;
  std::copy_if(u.params.begin(), u.params.end(), std::back_inserter(owned), [](Param* p) { return !p->tied_to_; });
  std::stable_sort(owned.begin(), owned.end(), [](const Param* a, const Param* b) {
    const auto key = [](const Param* p) {
      return std::tuple(!p->spec().decays(), !p->spec().linear, p->spec().place[Axis::tp]);
    };
    return key(a) < key(b);
  });
  for (Param* p : owned) {
    p->offset_ = u.size;
    for (const Piece& piece : p->pieces()) {
      const Range range{.run = {u.size + piece.local_row * piece.cols.count, piece.rows.count * piece.cols.count},
                        .held = piece.held,
                        .decays = p->spec().decays(),
                        .linear = p->spec().linear};
      Range* last = u.ranges.empty() ? nullptr : &u.ranges.back();
      if (last && last->held == range.held && last->like(range))
        last->run.count = range.run.end() - last->run.first;
      else
        u.ranges.push_back(range);
    }
    u.size = padded(u.size + p->most_elements(), kSumLeaf);
  }
  u.size = padded(u.size, kSumLeaf * order_.ranks);  // each rank sums a share of it
}

// Second gradients of tied weights lie as the first: in a unit like the owner's, without values.
void ParamStore::make_mirrors(int index) {
  for (size_t i = 0; i < unit(index).params.size(); ++i) {
    Param* p = unit(index).params[i];
    if (p->tied_to_ == nullptr) continue;
    const Unit& owner = unit(p->tied_to_->unit_);
    p->offset_ = p->tied_to_->offset_;
    p->unit_ = num_units();
    units_.push_back(Unit{.name = owner.name + " in " + unit(index).name,
                          .params = {p},
                          .mirrors = p->tied_to_->unit_,
                          .size = owner.size,
                          .tree = TreeSum(order_.num_leaves())});
  }
}

// The ranges of weights of one kind each, with the padding behind them: together the whole unit.
std::vector<ParamStore::Range> ParamStore::kinds(const Unit& u) {
  std::vector<Range> all;
  for (const Range& r : u.ranges)
    if (all.empty() || !all.back().like(r)) all.push_back(r);
  for (size_t i = 0; i < all.size(); ++i)
    all[i].run.count = (i + 1 < all.size() ? all[i + 1].run.first : u.size) - all[i].run.first;
  return all;
}

void ParamStore::allocate(const Arenas& arenas, const NumStates& num_states) {
  allocate_values(arenas.params, arenas.transit);
  Arena& grads = arenas.grads;
  int64_t share = 0;
  for (const Unit& u : units_) share = std::max(share, u.size / order_.ranks);
  for (Unit& u : units_) {
    allocate_gradients(u, grads);
    if (u.mirrors < 0) allocate_states(u, arenas.states, num_states);
  }
  int64_t twin = 0;
  for (const Unit& u : units_)
    if (u.mirrors < 0 && u.params.size() == 1 && u.params[0]->spec().twin >= 0) twin = shard_of(u).count;
  if (twin > 0) twins_ = grads.alloc(precision_.stat, {twin});
  if (order_.reduces_in_bf16 && order_.ranks > 1) add_pool(narrow_, arenas.transit, DType::bf16, false);
  if (order_.reduces_each()) {
    add_pool(transient_, arenas.transit, precision_.stat, !order_.separate_ties());
    size_t most = 0;
    for (const Unit& u : units_) most = std::max(most, u.params.size());
    transient_written_.assign(transient_.size(), std::vector<char>(most));
  } else if (order_.tree && order_.ranks > 1) {
    staging_ = grads.alloc(precision_.stat, {int64_t(all_nodes_.size()), share});
  }
}

// Of a unit's kinds of weights, those with more states lie together: a run for each tensor of state.
std::vector<Run> ParamStore::state_runs(const Unit& u, const NumStates& num_states) {
  std::vector<Run> runs;
  for (const Range& kind : kinds(u)) {
    int most = 0;
    for (const Param* p : u.params)
      if (p->tied_to_ == nullptr && p->offset_ >= kind.run.first && p->offset_ < kind.run.end())
        most = std::max(most, num_states(p->spec()));
    while (int(runs.size()) < most) runs.push_back({kind.run.first, 0});
    for (int k = 0; k < most; ++k) runs[size_t(k)].count = kind.run.end() - runs[size_t(k)].first;
  }
  return runs;
}

void ParamStore::allocate_states(Unit& u, Arena& states, const NumStates& num_states) {
  for (const Run& run : state_runs(u, num_states)) {
    const Run here = overlap(run, shard_of(u));
    u.states.push_back({here, states.alloc(precision_.stat, {here.count})});
  }
}

std::vector<std::vector<int64_t>> ParamStore::state_sizes(const NumStates& num_states) const {
  std::vector<std::vector<int64_t>> all(static_cast<size_t>(order_.shards));
  for (const Unit& u : units_) {
    if (u.mirrors >= 0) continue;
    const int64_t each = u.size / order_.shards;
    for (const Run& run : state_runs(u, num_states))
      for (int64_t shard = 0; shard < order_.shards; ++shard)
        all[size_t(shard)].push_back(overlap(run, {shard * each, each}).count);
  }
  return all;
}

// Those that a run of the unit has.
std::vector<Tensor> ParamStore::states_of(const Unit& u, Run run) {
  std::vector<Tensor> all;
  for (const State& s : u.states)
    if (s.run.first <= run.first && run.end() <= s.run.end())
      all.push_back(s.flat.slice_rows(run.first - s.run.first, run.count));
  return all;
}

void ParamStore::used_together(const std::vector<int>& units) { together_.push_back(units); }

// Buffers for the units that are in use at once: one, or two of which one holds the smaller. `ties_stay`: the owner of
// a tied weight beside any other unit. And one for a unit that is on its way meanwhile.
void ParamStore::add_pool(BufferPool& pool, Arena& arena, DType dtype, bool ties_stay) const {
  std::vector<int64_t> sizes{0};
  for (const Unit& u : units_) sizes.push_back(u.size);
  std::sort(sizes.rbegin(), sizes.rend());
  int64_t second = 0;
  const auto both = [&](int a, int b) {
    second = std::max(second, std::min(units_[size_t(a)].size, units_[size_t(b)].size));
  };
  for (const std::vector<int>& units : together_)
    for (size_t i = 1; i < units.size(); ++i) both(units[i - 1], units[i]);
  for (int i = 0; i < num_units(); ++i) {
    for (const Param* p : units_[size_t(i)].params) {
      if (p->tied_to_ == nullptr) continue;
      both(i, p->tied_to_->unit_);
      if (ties_stay) second = std::max(second, sizes[1]);
    }
  }
  pool.add(arena, dtype, sizes[0]);
  if (second > 0) pool.add(arena, dtype, second);
  if (const int64_t next = largest_neighbour(); next > 0) pool.add(arena, dtype, next);
}

// Where the largest unit keeps a buffer to itself, two neighbours need one more than a pool has.
void ParamStore::add_value_pool(Arena& transit) {
  add_pool(values_, transit, precision_.compute, false);
  const int64_t next = largest_neighbour();
  if (next > 0 && values_.num_holding(next) < 3 && values_[0].rows() > next)
    values_.add(transit, precision_.compute, next);
}

// Holds at least one of any two units that follow each other.
int64_t ParamStore::largest_neighbour() const {
  int64_t largest = 0;
  for (size_t i = 1; i < units_.size(); ++i) largest = std::max(largest, std::min(units_[i - 1].size, units_[i].size));
  return largest;
}

void ParamStore::allocate_gradients(Unit& u, Arena& grads) {
  const int num_sums = order_.reduces_each() && !order_.tree ? 0 : num_sums_;
  const int64_t each = order_.reduces_each() ? u.size / order_.ranks : u.size;
  for (int b = 0; b < num_sums; ++b) {
    u.buffers.push_back(grads.alloc(precision_.stat, {each}));
    u.written.emplace_back(u.params.size());
  }
  u.open.reserve(u.buffers.size() + 1);
  u.gaps = gaps_of(u);
  if (order_.reduces_each() && !(order_.tree && mesh_.replicas->size() == 1))
    u.sum = grads.alloc(precision_.stat, {shard_of(u).count});
}

void ParamStore::allocate_values(Arena& params, Arena& transit) {
  WEFT_CHECK(pending_.empty(), "a unit is still open");
  memory_ = params.memory();
  const bool cut = order_.zero_stage == 3, rounded = precision_.compute != precision_.stat;
  for (Unit& u : units_) {
    if (u.mirrors >= 0) continue;
    const Run shard = shard_of(u);
    if (!cut) u.value = params.alloc(precision_.compute, {u.size});
    u.master =
        cut || rounded ? params.alloc(precision_.stat, {shard.count}) : u.value.slice_rows(shard.first, shard.count);
    u.value_shard = !cut      ? u.value.slice_rows(shard.first, shard.count)
                    : rounded ? params.alloc(precision_.compute, {shard.count})
                              : u.master;
  }
  if (cut) add_value_pool(transit);
  for (Unit& u : units_)
    if (!cut) point_values(u);
}

void ParamStore::point_values(Unit& u) {
  for (Param* p : u.params) {
    const Unit& owner = p->tied_to_ ? unit(p->tied_to_->unit_) : u;
    const Param& at = p->tied_to_ ? *p->tied_to_ : *p;
    p->value = slice(owner.value, at).placed(p->spec().place);
  }
}

Tensor ParamStore::slice(const Tensor& flat, const Param& p) const {
  return flat.slice_rows(p.offset_, p.shape().elements()).reshape(p.shape());
}

Run ParamStore::shard_of(const Unit& u) const {
  const int64_t each = u.size / order_.shards;
  return {shards().rank() * each, each};
}

// Of its rank's shard, the part that a data-parallel rank sums: as many as there are replicas of the shard.
Run ParamStore::share_of_rank(const Unit& u, int64_t r) const {
  const int64_t each = u.size / order_.ranks;
  return {(r % order_.shards) * (u.size / order_.shards) + r / order_.shards * each, each};
}

void ParamStore::fetch(int index) {
  Unit& u = unit(index);
  WEFT_CHECK(u.master, "unit {} has no memory", u.name);
  if (order_.zero_stage < 3) return;
  for (Param* p : u.params)
    if (p->tied_to_ != nullptr) fetch(p->tied_to_->unit_);
  if (u.fetched++ > 0) return;
  if (u.size > 0) {
    if (u.slot < 0 && !values_.has_free(u.size)) drop_prefetched();
    if (u.slot < 0) begin_gather(u, values_.take(u.size));
    u.gather.wait();
  }
  point_values(u);
}

void ParamStore::begin_gather(Unit& u, int slot) {
  u.slot = slot;
  u.value = values_[slot].slice_rows(0, u.size);
  u.gather = shards().all_gather(u.value_shard, u.value);
}

void ParamStore::prefetch(int index) {
  Unit& u = unit(index);
  if (order_.zero_stage < 3 || shards().size() == 1) return;
  for (Param* p : u.params)
    if (p->tied_to_ != nullptr) prefetch(p->tied_to_->unit_);
  if (u.slot >= 0 || u.size == 0) return;
  if (const int slot = values_.take_spare(u.size); slot >= 0) begin_gather(u, slot);
}

// What came too early: its buffer is needed, or its values are old.
void ParamStore::drop_prefetched() {
  for (Unit& u : units_) {
    if (u.slot < 0 || u.fetched > 0) continue;
    u.gather.wait();
    values_.give(std::exchange(u.slot, -1));
  }
}

void ParamStore::release(int index) {
  Unit& u = unit(index);
  if (order_.zero_stage < 3) return;
  for (Param* p : u.params)
    if (p->tied_to_ != nullptr) release(p->tied_to_->unit_);
  WEFT_CHECK(u.fetched > 0, "unit {} is released, but not fetched", u.name);
  if (--u.fetched > 0 || u.size == 0) return;
  values_.give(std::exchange(u.slot, -1));
  u.value = {};
}

void ParamStore::masters_changed(Backend& backend) {
  for (Unit& u : units_)
    if (precision_.compute != precision_.stat && u.mirrors < 0 && u.size > 0)
      backend.run(Copy{.from = u.master, .to = u.value_shard});
  updated();
  backend.wait_all();
}

void ParamStore::updated() {
  drop_prefetched();
  if (order_.zero_stage == 0 || order_.zero_stage == 3) return;
  for (Unit& u : units_)
    if (u.mirrors < 0 && u.size > 0) u.gather = shards().all_gather(u.value_shard, u.value);
  for (Unit& u : units_) u.gather.wait();
}

std::vector<ParamStore::Segment> ParamStore::segments(int index) const {
  const Unit& u = units_[size_t(index)];
  const Run shard = shard_of(u);
  std::vector<Segment> all;
  if (u.mirrors >= 0) return all;
  for (const Range& kind : kinds(u)) {
    const Run here = overlap(kind.run, shard);
    if (here.count == 0) continue;
    const auto cut = [&](const Tensor& t) { return t.slice_rows(here.first - shard.first, here.count); };
    all.push_back({.master = cut(u.master),
                   .grad = cut(shard_gradient(u)),
                   .value = precision_.compute != precision_.stat ? cut(u.value_shard) : Tensor{},
                   .states = states_of(u, here),
                   .decays = kind.decays,
                   .linear = kind.linear});
  }
  return all;
}

std::vector<ParamStore::GradRange> ParamStore::grad_ranges() const {
  std::vector<GradRange> all;
  const auto add = [&](const Unit& u, Run run, Spmd held) {
    if (run.count == 0) return;
    const int64_t each = shard_of(u).count;
    GradRange range{
        .position = u.position, .size = run.count, .first = run.first, .shard_size = each, .held = held, .grad = {}};
    const Run here = range.kept(shards().rank());
    if (here.count > 0 && has_gradient(u))
      range.grad = shard_gradient(u).slice_rows(run.first + here.first - shard_of(u).first, here.count);
    all.push_back(std::move(range));
  };
  for (const Unit& u : units_) {
    if (u.mirrors >= 0 || is_copy(u)) continue;
    for (const Range& r : u.ranges) {  // what begins within a leaf of the tree is a range of its own
      const int64_t begun = std::min(padded(r.run.first, kSumLeaf) - r.run.first, r.run.count);
      add(u, {r.run.first, begun}, r.held);
      add(u, {r.run.first + begun, r.run.count - begun}, r.held);
    }
  }
  return all;
}

Run ParamStore::GradRange::kept(int64_t shard, int64_t num_shards) const {
  const Run here = overlap({first, size}, {shard * shard_size, num_shards * shard_size});
  return {here.first - first, here.count};
}

namespace {

// A run of the elements of a block of `width` columns, row by row, as rectangles: what is left of a first row, whole
// rows, the beginning of a last one. Calls f(rows, cols, at), `at` counting from the run's first element.
template <class F>
void for_each_rectangle(Run run, int64_t width, const F& f) {
  for (int64_t at = run.first; at < run.end();) {
    const int64_t row = at / width, col = at % width, left = run.end() - at;
    const bool whole = col == 0 && left >= width;
    const Run rows{row, whole ? left / width : 1}, cols{col, whole ? width : std::min(width - col, left)};
    f(rows, cols, at - run.first);
    at += rows.count * cols.count;
  }
}

}  // namespace

std::vector<ParamStore::Stored> ParamStore::stored(const Param& p) const {
  const Unit& u = units_[size_t(p.unit_)];
  const Run shard = shard_of(u);
  std::vector<Stored> all;
  for (size_t i = 0; i < p.pieces().size(); ++i) {
    const Piece& piece = p.pieces()[i];
    const Run here = kept(p, i, tp(), shards().rank());
    const int64_t first = p.offset_ + piece.local_row * piece.cols.count + here.first;  // of the unit
    for_each_rectangle(here, piece.cols.count, [&](Run rows, Run cols, int64_t at) {
      const Run run{first + at, rows.count * cols.count};
      const auto shaped = [&](const Tensor& t) { return t.reshape({rows.count, cols.count}); };
      const auto cut = [&](const Tensor& t) { return shaped(t.slice_rows(run.first - shard.first, run.count)); };
      Stored s{.rows = {piece.rows.first + rows.first, rows.count},
               .cols = {piece.cols.first + cols.first, cols.count},
               .piece = int(i),
               .master = cut(u.master),
               .grad = {},
               .states = {}};
      if (has_gradient(u)) s.grad = cut(shard_gradient(u));
      for (const Tensor& t : states_of(u, run)) s.states.push_back(shaped(t));
      all.push_back(std::move(s));
    });
  }
  return all;
}

Run ParamStore::kept(const Param& p, size_t piece, RankOf tp, int64_t shard) const {
  const Piece there = pieces_of(p.spec(), tp)[piece];
  const int64_t first = p.offset_ + there.local_row * there.cols.count;
  const int64_t each = units_[size_t(p.unit_)].size / order_.shards;
  const Run here = overlap({first, there.rows.count * there.cols.count}, {shard * each, each});
  return {here.first - first, here.count};
}

Tensor ParamStore::kept_gradient(const Param& p, size_t piece) const {
  const Unit& u = units_[size_t(p.unit_)];
  const Run run = kept(p, piece, tp(), shards().rank());
  if (run.count == 0) return {};
  const int64_t first = p.offset_ + p.pieces()[piece].local_row * p.pieces()[piece].cols.count + run.first;
  return shard_gradient(u).slice_rows(first - shard_of(u).first, run.count);
}

std::vector<Param*> ParamStore::params(Copies copies) const {
  std::vector<Param*> owners;
  for (const Unit& u : units_)
    for (Param* p : u.params)
      if (p->tied_to_ == nullptr && (copies == Copies::with || !p->spec().copy)) owners.push_back(p);
  return owners;
}

int64_t ParamStore::num_elements() const {
  int64_t n = 0;
  for (const Param* p : params()) n += p->spec().shape.elements();
  return n;
}

}  // namespace weft
