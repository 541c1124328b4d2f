#include "weft/dist/param_store.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int64_t kPadding = kArenaAlignment / 4;  // elements: a cache line of f32

int64_t padded(int64_t n, int64_t to = kPadding) { return (n + to - 1) / to * to; }

}  // namespace

int GradientOrder::num_buffers() const {
  if (!tree) return 1;
  int most = 1;
  for (int64_t r = 0; r < ranks; ++r) most = std::max(most, tree_buffers(num_leaves(), run_of(r)));
  return most;
}

ParamStore::ParamStore(Precision precision, GradientOrder order, const ProcessMesh& mesh)
    : precision_(precision), order_(order), mesh_(mesh) {
  WEFT_CHECK(dp().size() == order.ranks && dp().rank() == order.rank, "data-parallel rank {} of {}, planned {} of {}",
             dp().rank(), dp().size(), order.rank, order.ranks);
  if (!order_.tree) return;
  for (int64_t r = 0; r < order_.ranks; ++r)
    for (const TreeNode& node : tree_cover(order_.num_leaves(), order_.run_of(r))) all_nodes_.push_back(node);
}

Param& ParamStore::add(ParamSpec spec) {
  pending_.push_back(all_.emplace_back(std::make_unique<Param>(std::move(spec))).get());
  return *pending_.back();
}

Param& ParamStore::tie(Param& owner) {
  Param& p = add(owner.spec());
  p.tied_to_ = &owner;
  return p;
}

int ParamStore::close_unit(std::string name) {
  Unit unit{.name = std::move(name), .params = std::move(pending_)};
  pending_.clear();
  for (Param* p : unit.params) p->unit_ = int(units_.size());
  place(unit, true);
  unit.decayed = unit.size;
  place(unit, false);
  unit.size = padded(unit.size, kPadding * order_.ranks);  // each rank sums a share of it
  unit.grad_size = unit.size;
  for (Param* p : unit.params) {
    if (p->tied_to_ == nullptr) continue;
    p->offset_ = unit.grad_size;
    if (order_.separate_ties()) unit.grad_size += padded(p->spec().shape.elements());
  }
  unit.grad_size = padded(unit.grad_size, kPadding * order_.ranks);
  unit.tree = TreeSum(order_.num_leaves());
  units_.push_back(std::move(unit));
  return num_units() - 1;
}

void ParamStore::place(Unit& unit, bool decays) {
  for (Param* p : unit.params) {
    if (p->tied_to_ != nullptr || p->spec().decays() != decays) continue;
    p->offset_ = unit.size;
    unit.size += padded(p->spec().shape.elements());
  }
}

void ParamStore::allocate(Arena& params, Arena& grads, Arena& states, int num_states) {
  allocate_values(params);
  for (Unit& u : units_) {
    for (int b = order_.num_buffers(); b > 0; --b) {
      u.buffers.push_back(grads.alloc(precision_.stat, u.grad_size));
      u.written.emplace_back(u.params.size());
    }
    for (int k = 0; k < num_states; ++k) u.states.push_back(states.alloc(precision_.stat, u.size));
    u.open.reserve(u.buffers.size());
  }
  if (!order_.tree || order_.ranks == 1) return;
  int64_t share = 0;
  for (const Unit& u : units_) share = std::max(share, u.grad_size / order_.ranks);
  staging_ = grads.alloc(precision_.stat, {int64_t(all_nodes_.size()), share});
}

void ParamStore::allocate_values(Arena& params) {
  WEFT_CHECK(pending_.empty(), "a unit is still open");
  for (Unit& u : units_) allocate_unit_values(u, params);
  for (auto& p : all_) {  // after every owner has its value
    if (p->tied_to_ != nullptr) p->value = p->tied_to_->value;
  }
}

void ParamStore::allocate_unit_values(Unit& u, Arena& params) {
  u.master = params.alloc(precision_.stat, u.size);
  u.value = precision_.compute == precision_.stat ? u.master : params.alloc(precision_.compute, u.size);
  for (Param* p : u.params) {
    if (p->tied_to_ == nullptr) p->value = slice(u.value, *p).placed(p->spec().place);
  }
}

Tensor ParamStore::slice(const Tensor& flat, const Param& p) const {
  return flat.slice_rows(p.offset_, p.spec().shape.elements()).reshape(p.spec().shape);
}

void ParamStore::fetch(int unit) { WEFT_CHECK(units_[size_t(unit)].master, "unit {} has no memory", unit); }
void ParamStore::release(int unit) { WEFT_CHECK(unit < num_units(), "no unit {}", unit); }

void ParamStore::begin_step() {
  for (Unit& u : units_) u.tree.clear();
}

void ParamStore::open_grads(int unit, int64_t micro_batch) {
  Unit& u = units_[size_t(unit)];
  const int64_t leaf = order_.leaf_of(micro_batch);
  auto open = std::find_if(u.open.begin(), u.open.end(), [&](const OpenLeaf& o) { return o.leaf == leaf; });
  if (open == u.open.end()) {
    open = u.open.insert(open, {leaf, u.tree.take()});
    WEFT_CHECK(size_t(open->buffer) < u.buffers.size(), "unit {} keeps more gradients than planned", u.name);
    std::fill(u.written[size_t(open->buffer)].begin(), u.written[size_t(open->buffer)].end(), char(false));
  }
  point_grads(u, open->buffer);
  share_grads(u, micro_batch);
}

void ParamStore::point_grads(Unit& u, int buffer) {
  for (size_t i = 0; i < u.params.size(); ++i) {
    Param& p = *u.params[i];
    if (p.tied_to_ != nullptr && !order_.separate_ties()) continue;
    p.grad = slice(u.buffers[size_t(buffer)], p).placed(p.spec().place.dual());
    p.written_ = &u.written[size_t(buffer)][i];
  }
}

// Ties that add into their owner's gradient: the owner's leaf must be open.
void ParamStore::share_grads(Unit& u, int64_t micro_batch) {
  for (Param* p : u.params) {
    if (p->tied_to_ == nullptr || order_.separate_ties()) continue;
    if (p->tied_to_->unit_ != p->unit_) open_grads(p->tied_to_->unit_, micro_batch);
    p->grad = p->tied_to_->grad;
    p->written_ = p->tied_to_->written_;
  }
}

void ParamStore::flush(Backend& backend, int unit, int64_t micro_batch, bool last) {
  if (!last || !order_.ends_leaf(micro_batch)) return;
  Unit& u = units_[size_t(unit)];
  const int64_t leaf = order_.leaf_of(micro_batch);
  const auto open = std::find_if(u.open.begin(), u.open.end(), [&](const OpenLeaf& o) { return o.leaf == leaf; });
  WEFT_CHECK(open != u.open.end(), "flush of unit {}, whose gradients are not open", u.name);
  const int buffer = open->buffer;
  u.open.erase(open);
  u.tree.settle({0, leaf}, buffer, [&](int into, int from) {
    const Tensor &sum = u.buffers[size_t(into)], &more = u.buffers[size_t(from)];
    backend.run(Add{.x = sum, .y = more, .out = sum});
  });
  if (order_.tree || order_.ranks == 1) return;
  backend.wait_all();
  u.reduction = dp().all_reduce(u.buffers[size_t(buffer)]);  // while earlier layers still run backward
}

// Every rank sums its share of the elements over the nodes of all ranks, as the tree says, and gives it to all.
void ParamStore::join_trees(Backend& backend, Unit& u) {
  const int64_t ranks = order_.ranks, share = u.grad_size / ranks;
  const std::vector<TreeSum::Held> mine = u.tree.held();
  std::vector<Work> sent;
  for (int64_t step = 1; step < ranks; ++step) {
    const int64_t to = (order_.rank + step) % ranks;
    for (const auto& h : mine)
      sent.push_back(dp().send(u.buffers[size_t(h.buffer)].slice_rows(to * share, share), int(to)));
  }
  std::vector<Tensor> sums(all_nodes_.size());
  const auto receive = [&](int64_t from) {
    const LeafRun run = order_.run_of(from);
    for (size_t i = 0, own = 0; i < all_nodes_.size(); ++i) {
      if (all_nodes_[i].first() < run.first || all_nodes_[i].first() >= run.first + run.count) continue;
      if (from == order_.rank) {
        sums[i] = u.buffers[size_t(mine.at(own++).buffer)].slice_rows(from * share, share);
      } else {
        sums[i] = staging_.slice_rows(int64_t(i), 1).reshape({staging_.cols()}).slice_rows(0, share);
        dp().recv(sums[i], int(from)).wait();
      }
    }
  };
  for (int64_t step = 0; step < ranks; ++step) receive((order_.rank + ranks - step) % ranks);
  for (Work& w : sent) w.wait();
  TreeSum top(order_.num_leaves());
  for (size_t i = 0; i < sums.size(); ++i) WEFT_CHECK(top.take() == int(i), "node {} of a sum is not its buffer", i);
  for (size_t i = 0; i < sums.size(); ++i) {
    top.settle(all_nodes_[i], int(i), [&](int into, int from) {
      backend.run(Add{.x = sums[size_t(into)], .y = sums[size_t(from)], .out = sums[size_t(into)]});
    });
  }
  backend.wait_all();
  dp().all_gather(sums[size_t(top.root())], gradient(u)).wait();
}

Tensor ParamStore::gradient(const Unit& u) const {
  const auto held = u.tree.held();
  WEFT_CHECK(!held.empty(), "unit {} has no gradient", u.name);
  return u.buffers[size_t(held.front().buffer)];
}

void ParamStore::finish_step(Backend& backend) {
  backend.wait_all();
  for (Unit& u : units_) {
    u.reduction.wait();
    if (order_.tree && order_.ranks > 1) join_trees(backend, u);
    point_grads(u, u.tree.held().at(0).buffer);
  }
  for (auto& p : all_) {
    if (p->tied_to_ != nullptr && order_.separate_ties()) {
      backend.run(Add{.x = p->tied_to_->grad, .y = p->grad, .out = p->tied_to_->grad});
    }
  }
  for (Param* p : params()) p->grad = p->grad.placed(p->spec().place);  // reduced: held as the weight is
}

std::vector<ParamStore::Segment> ParamStore::segments(int unit) const {
  const Unit& u = units_[size_t(unit)];
  std::vector<Segment> all;
  auto add = [&](int64_t first, int64_t n, bool decays) {
    if (n == 0) return;
    auto cut = [&](const Tensor& t) { return t.slice_rows(first, n); };
    Segment s{.master = cut(u.master), .grad = cut(gradient(u)), .value = {}, .states = {}, .decays = decays};
    if (precision_.compute != precision_.stat) s.value = cut(u.value);
    for (const Tensor& t : u.states) s.states.push_back(cut(t));
    all.push_back(std::move(s));
  };
  add(0, u.decayed, true);
  add(u.decayed, u.size - u.decayed, false);
  return all;
}

std::vector<Param*> ParamStore::params() const {
  std::vector<Param*> owners;
  for (const Unit& u : units_)
    for (Param* p : u.params)
      if (p->tied_to_ == nullptr) owners.push_back(p);
  return owners;
}

Tensor ParamStore::master(const Param& p) const { return slice(units_[size_t(p.unit_)].master, p); }
Tensor ParamStore::state(const Param& p, int k) const { return slice(units_[size_t(p.unit_)].states.at(size_t(k)), p); }

void ParamStore::masters_changed(Backend& backend) {
  if (precision_.compute == precision_.stat) return;
  for (Unit& u : units_) {
    if (u.size > 0) backend.run(Copy{.from = u.master, .to = u.value});
  }
}

int64_t ParamStore::num_elements() const {
  int64_t n = 0;
  for (const Param* p : params()) n += p->spec().shape.elements();
  return n;
}

}  // namespace weft
