// How gradients of micro-batches on many ranks become sums.
#include <algorithm>

#include "weft/sharding/param_store.h"

namespace weft {

void ParamStore::begin_step() {
  for (Unit& u : units_) {
    u.tree.clear();
    u.sums = false;
  }
}

void ParamStore::open_grads(Backend& backend, int index, int64_t micro_batch) {
  Unit& u = unit(index);
  open_owners(backend, u, micro_batch);
  const Open& open = open_leaf(backend, u, order_.leaf_of(micro_batch));
  if (order_.reduces_each())
    point_grads(u, transient_[open.buffer], transient_written_[size_t(open.buffer)]);
  else
    point_grads(u, u.buffers[size_t(open.buffer)], u.written[size_t(open.buffer)]);
  share_grads(u);
}

ParamStore::Open& ParamStore::open_leaf(Backend& backend, Unit& u, int64_t leaf) {
  const auto open = std::find_if(u.open.begin(), u.open.end(), [&](const Open& o) { return o.leaf == leaf; });
  if (open != u.open.end()) return *open;
  if (order_.reduces_each()) {
    if (!transient_.has_free(u.size)) wait_reductions(backend);
    const int slot = transient_.take(u.size);
    std::fill(transient_written_[size_t(slot)].begin(), transient_written_[size_t(slot)].end(), char(false));
    for (const Run& gap : u.gaps) backend.run(Zero{.x = transient_[slot].slice_rows(gap.first, gap.count)});
    return u.open.emplace_back(Open{leaf, slot});
  }
  const int buffer = u.tree.take();
  WEFT_CHECK(size_t(buffer) < u.buffers.size(), "unit {} keeps more gradients than planned", u.name);
  std::fill(u.written[size_t(buffer)].begin(), u.written[size_t(buffer)].end(), char(false));
  return u.open.emplace_back(Open{leaf, buffer});
}

std::vector<Run> ParamStore::gaps_of(const Unit& u) {
  std::vector<Run> used, gaps;
  for (const Param* p : u.params)
    if (p->tied_to_ == nullptr || u.mirrors >= 0) used.push_back({p->offset_, p->shape().elements()});
  std::sort(used.begin(), used.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
  int64_t at = 0;
  for (const Run& run : used) {
    if (run.first > at) gaps.push_back({at, run.first - at});
    at = run.end();
  }
  if (u.size > at) gaps.push_back({at, u.size - at});
  return gaps;
}

void ParamStore::point_grads(Unit& u, const Tensor& flat, std::vector<char>& written) {
  for (size_t i = 0; i < u.params.size(); ++i) {
    Param& p = *u.params[i];
    if (p.tied_to_ != nullptr && u.mirrors < 0) continue;
    p.grad = slice(flat, p).placed(p.spec().place.dual());
    p.written_ = &written[i];
  }
}

// Ties: a gradient of their own in a mirror, or their owner's, whose leaf must then be open. It stays so for longer
// than this unit's, so it is the first to take the buffer that fits it.
void ParamStore::open_owners(Backend& backend, Unit& u, int64_t micro_batch) {
  for (const Param* p : u.params) {
    if (p->tied_to_ == nullptr || u.mirrors >= 0) continue;
    const int holder = order_.separate_ties() ? p->unit_ : p->tied_to_->unit_;
    if (&unit(holder) != &u) open_grads(backend, holder, micro_batch);
  }
}

void ParamStore::share_grads(Unit& u) {
  for (Param* p : u.params) {
    if (p->tied_to_ == nullptr || u.mirrors >= 0 || order_.separate_ties()) continue;
    p->grad = p->tied_to_->grad;
    p->written_ = p->tied_to_->written_;
  }
}

void ParamStore::flush(Backend& backend, int index, int64_t micro_batch, bool last) {
  Unit& u = unit(index);
  if (order_.separate_ties() && u.mirrors < 0)
    for (Param* p : u.params)
      if (p->tied_to_ != nullptr) flush(backend, p->unit_, micro_batch, last);
  if (!last || (!order_.reduces_each() && !order_.ends_leaf(micro_batch))) return;
  const int64_t leaf = order_.leaf_of(micro_batch);
  const auto open = std::find_if(u.open.begin(), u.open.end(), [&](const Open& o) { return o.leaf == leaf; });
  WEFT_CHECK(open != u.open.end(), "flush of unit {}, whose gradients are not open", u.name);
  const int buffer = open->buffer;
  u.open.erase(open);
  if (order_.reduces_each()) return reduce_each(backend, u, micro_batch, buffer);
  settle(backend, u, {0, leaf}, buffer);
  if (order_.tree || order_.ranks == 1) return;
  begin_reduction(backend, u, u.buffers[size_t(buffer)]);
}

void ParamStore::pass_over(int64_t first, int64_t end) {
  if (!order_.tree || first >= end) return;
  const int64_t per = order_.reduces_each() ? order_.ranks : 1, at = order_.reduces_each() ? 0 : order_.leaf_of(0);
  const auto nodes = tree_cover(order_.num_leaves(), {at + first * per, (end - first) * per});
  for (Unit& u : units_)
    for (const TreeNode& node : nodes)
      if (u.size > 0) u.tree.settle(node, u.tree.take(), [](int, int) {});
}

void ParamStore::settle(Backend& backend, Unit& u, TreeNode node, int buffer) {
  u.tree.settle(node, buffer, [&](int into, int from) {
    const Tensor &sum = u.buffers[size_t(into)], &more = u.buffers[size_t(from)];
    backend.run(Add{.x = sum, .y = more, .out = sum});
  });
}

// One micro-batch of every rank: each rank's shard (with a tree: share) of their sum.
void ParamStore::reduce_each(Backend& backend, Unit& u, int64_t micro_batch, int buffer) {
  const Tensor whole = transient_[buffer].slice_rows(0, u.size);
  if (order_.tree && u.size > 0) exchange_leaves(backend, u, micro_batch, whole);
  if (order_.tree || u.size == 0) return transient_.give(buffer);
  wait_reductions(backend);
  begin_reduction(backend, u, whole, buffer);
}

// Each rank's shard of the sum over all ranks of the shards. Replicas of it follow (wait_replicas), where there are.
void ParamStore::begin_reduction(Backend& backend, Unit& u, const Tensor& whole, int transient) {
  if (u.size == 0) return;
  Reduction r{.unit = &u, .whole = whole, .transient = transient, .narrow = -1, .work = {}};
  Tensor sent = whole;
  if (order_.reduces_in_bf16) {
    while (!narrow_.has_free(u.size)) wait_oldest_reduction(backend);
    r.narrow = narrow_.take(u.size);
    sent = narrow_[r.narrow].slice_rows(0, u.size);
    backend.run(Copy{.from = whole, .to = sent});
  }
  const Run shard = shard_of(u);
  r.work = order_.shards > 1 ? shards().reduce_scatter(sent, sent.slice_rows(shard.first, shard.count))
                             : mesh_.replicas->all_reduce(sent);
  reducing_.push_back(std::move(r));
}

void ParamStore::wait_oldest_reduction(Backend& backend) {
  Reduction r = std::move(reducing_.front());
  reducing_.pop_front();
  r.work.wait();
  Unit& u = *r.unit;
  const Run shard = shard_of(u);
  const Tensor mine = r.whole.slice_rows(shard.first, shard.count);
  if (r.narrow >= 0) backend.run(Copy{.from = narrow_[r.narrow].slice_rows(shard.first, shard.count), .to = mine});
  if (r.transient >= 0 && std::exchange(u.sums, true))
    backend.run(Add{.x = u.sum, .y = mine, .out = u.sum});
  else if (r.transient >= 0)
    backend.run(Copy{.from = mine, .to = u.sum});
  if (r.narrow >= 0) narrow_.give(r.narrow);
  if (r.transient >= 0) transient_.give(r.transient);
}

// Until every rank's shard is the sum over all ranks, where it is not over a tree.
void ParamStore::wait_replicas() {
  if (order_.tree || order_.shards == 1 || mesh_.replicas->size() == 1) return;
  for (Unit& u : units_)
    if (u.size > 0) u.replicas = mesh_.replicas->all_reduce(shard_gradient(u));
  for (Unit& u : units_) u.replicas.wait();
}

// The leaves of all ranks, in their order, to the tree of this rank's share.
void ParamStore::exchange_leaves(Backend& backend, Unit& u, int64_t micro_batch, const Tensor& whole) {
  std::vector<Work> sent;
  for (int64_t step = 1; step < order_.ranks; ++step) {
    const int64_t to = (order_.rank + step) % order_.ranks;
    const Run theirs = share_of_rank(u, to);
    sent.push_back(dp().send(whole.slice_rows(theirs.first, theirs.count), int(to)));
  }
  const Run mine = share_of_rank(u, order_.rank);
  for (int64_t from = 0; from < order_.ranks; ++from) {
    const int buffer = u.tree.take();
    WEFT_CHECK(size_t(buffer) < u.buffers.size(), "unit {} keeps more gradients than planned", u.name);
    if (from == order_.rank)
      backend.run(Copy{.from = whole.slice_rows(mine.first, mine.count), .to = u.buffers[size_t(buffer)]});
    else
      dp().recv(u.buffers[size_t(buffer)], int(from)).wait();
    settle(backend, u, {0, micro_batch * order_.ranks + from}, buffer);
  }
  for (Work& w : sent) w.wait();
}

// Every rank sums its share of the elements over the nodes of all ranks, as the tree says; those that hold a shard
// together give it to each other.
void ParamStore::join_trees(Backend& backend, Unit& u) {
  const std::vector<TreeSum::Held> mine = u.tree.held();
  std::vector<Work> sent;
  for (int64_t step = 1; step < order_.ranks; ++step) {
    const int64_t to = (order_.rank + step) % order_.ranks;
    const Run theirs = share_of_rank(u, to);
    for (const auto& h : mine)
      sent.push_back(dp().send(u.buffers[size_t(h.buffer)].slice_rows(theirs.first, theirs.count), int(to)));
  }
  const Run share = share_of_rank(u, order_.rank);
  std::vector<Tensor> sums(all_nodes_.size());
  const auto receive = [&](int64_t from) {
    for (size_t i = nodes_until_[size_t(from)], own = 0; i < nodes_until_[size_t(from) + 1]; ++i) {
      if (from == order_.rank) {
        sums[i] = u.buffers[size_t(mine.at(own++).buffer)].slice_rows(share.first, share.count);
      } else {
        sums[i] = staging_.slice_rows(int64_t(i), 1).reshape({staging_.cols()}).slice_rows(0, share.count);
        dp().recv(sums[i], int(from)).wait();
      }
    }
  };
  for (int64_t step = 0; step < order_.ranks; ++step) receive((order_.rank + order_.ranks - step) % order_.ranks);
  for (Work& w : sent) w.wait();
  TreeSum top(order_.num_leaves());
  for (size_t i = 0; i < sums.size(); ++i) WEFT_CHECK(top.take() == int(i), "node {} of a sum is not its buffer", i);
  for (size_t i = 0; i < sums.size(); ++i) {
    top.settle(all_nodes_[i], int(i), [&](int into, int from) {
      backend.run(Add{.x = sums[size_t(into)], .y = sums[size_t(from)], .out = sums[size_t(into)]});
    });
  }
  mesh_.replicas->all_gather(sums[size_t(top.root())], shard_gradient(u)).wait();
}

// Where this rank's shard of the sum lies.
Tensor ParamStore::shard_gradient(const Unit& u) const {
  if (u.sum) return u.sum;
  const auto held = u.tree.held();
  const Tensor& buffer = u.buffers[held.empty() ? 0 : size_t(held.front().buffer)];
  if (order_.reduces_each()) return buffer;
  const Run shard = shard_of(u);
  return buffer.slice_rows(shard.first, shard.count);
}

void ParamStore::finish_step(Backend& backend) {
  wait_reductions(backend);
  wait_replicas();
  for (Unit& u : units_) {
    if (u.size == 0) continue;
    if (order_.tree && order_.reduces_each() && u.sum)
      mesh_.replicas->all_gather(u.buffers[size_t(u.tree.root())], u.sum).wait();
    else if (order_.tree && !order_.reduces_each() && order_.ranks > 1)
      join_trees(backend, u);
    sum_over_tp(u);
  }
  if (order_.separate_ties()) add_ties(backend);
  add_twins(backend);
}

// The gradients of a weight that two stages have: units of that weight alone, so they are sharded alike.
void ParamStore::add_twins(Backend& backend) {
  for (Unit& u : units_) {
    if (u.mirrors >= 0 || u.params.size() != 1 || u.params[0]->spec().twin < 0) continue;
    const int peer = u.params[0]->spec().twin;
    const Tensor mine = shard_gradient(u), theirs = twins_.slice_rows(0, mine.rows());
    Work sent = mesh_.pp->send(mine, peer);
    mesh_.pp->recv(theirs, peer).wait();
    sent.wait();
    backend.run(Add{.x = mine, .y = theirs, .out = mine});
  }
}

// The gradients of what tensor-parallel ranks use for different work.
void ParamStore::sum_over_tp(Unit& u) {
  if (tp().size == 1) return;
  const Run shard = shard_of(u);
  const Tensor sum = shard_gradient(u);
  const auto reduce = [&](Run run) {
    const int64_t first = std::max(run.first, shard.first), end = std::min(run.end(), shard.end());
    if (first < end) mesh_[Axis::tp].all_reduce(sum.slice_rows(first - shard.first, end - first)).wait();
  };
  for (const Range& r : u.mirrors >= 0 ? unit(u.mirrors).ranges : u.ranges)
    if (r.held == Spmd::Replicate) reduce(r.run);
}

void ParamStore::add_ties(Backend& backend) {
  for (Unit& u : units_) {
    if (u.mirrors < 0) continue;
    const Param& p = *u.params[0];
    const Run shard = shard_of(u);
    const int64_t first = std::max(p.offset_, shard.first),
                  end = std::min(p.offset_ + p.shape().elements(), shard.end());
    if (first >= end) continue;
    const auto here = [&](const Unit& of) { return shard_gradient(of).slice_rows(first - shard.first, end - first); };
    const Tensor owner = here(unit(u.mirrors));
    backend.run(Add{.x = owner, .y = here(u), .out = owner});
  }
}

}  // namespace weft
