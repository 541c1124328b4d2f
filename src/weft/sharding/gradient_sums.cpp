#include "weft/sharding/gradient_sums.h"

#include <algorithm>

namespace weft {

GradientSums::GradientSums(const FlatParams& flats, const ReplicaGroup& group, const WeightFormat& format,
                           Communicator& pipeline)
    : flats_(flats), group_(group), format_(format), pipeline_(pipeline) {
  if (!order().tree || order().reduces_each()) return;
  for (int64_t r = 0; r < order().ranks; ++r) {
    nodes_until_.push_back(all_nodes_.size());
    for (const TreeNode& node : tree_cover(order().num_leaves(), order().run_of(r))) all_nodes_.push_back(node);
  }
  nodes_until_.push_back(all_nodes_.size());
}

void GradientSums::allocate(Arena& grads, Arena& transit) {
  all_.resize(flats_.all.size());
  const int num_sums = order().reduces_each() && !order().tree ? 0 : order().num_buffers();
  int64_t twin = 0, share = 0;
  size_t most = 0;
  for (int i = 0; i < int(all_.size()); ++i) {
    Flat& f = at(i);
    const int64_t size = of(i).size(), of_a_rank = size / order().ranks;
    for (int b = 0; b < num_sums; ++b) {
      f.buffers.push_back(grads.alloc(format_.gradient, {order().reduces_each() ? of_a_rank : size}));
      f.written.emplace_back(of(i).params.size());
    }
    f.open.reserve(f.buffers.size() + 1);
    f.gaps = of(i).layout.gaps();
    f.tree = TreeSum(order().num_leaves());
    if (order().reduces_each() && !(order().tree && group_.replica().size == 1))
      f.sum = grads.alloc(format_.gradient, {shard_of(i).count});
    if (of(i).twin() >= 0) twin = shard_of(i).count;
    share = std::max(share, of_a_rank);
    most = std::max(most, of(i).params.size());
  }
  if (twin > 0) twins_ = grads.alloc(format_.gradient, {twin});
  if (format_.narrows())
    for (const int64_t elements : flats_.buffer_sizes(false)) narrow_.add(transit, format_.wire, elements);
  if (order().reduces_each()) {
    for (const int64_t elements : flats_.buffer_sizes(!order().separate_ties()))
      transient_.add(transit, format_.gradient, elements);
    transient_written_.assign(transient_.size(), std::vector<char>(most));
  } else if (order().tree && order().ranks > 1) {
    const int64_t nodes = order().shares_vary ? order().ranks * order().most_nodes() : int64_t(all_nodes_.size());
    staging_ = grads.alloc(format_.gradient, {nodes, share});
  }
}

// The part of its shard that a rank sums: the replicas of a shard divide it.
Run GradientSums::share_of_rank(int flat, int64_t r) const {
  const int64_t size = of(flat).size(), each = size / order().ranks;
  return {(r % order().shards) * (size / order().shards) + r / order().shards * each, each};
}

void GradientSums::begin_step() {
  for (Flat& f : all_) {
    f.tree.clear();
    f.sums = false;
  }
}

void GradientSums::open(Backend& backend, int flat, int64_t micro_batch) {
  open_owners(backend, flat, micro_batch);
  const int buffer = open_leaf(backend, flat, order().leaf_of(micro_batch)).buffer;
  if (order().reduces_each())
    point(flat, transient_[buffer], transient_written_[size_t(buffer)]);
  else
    point(flat, at(flat).buffers[size_t(buffer)], at(flat).written[size_t(buffer)]);
  point_ties(flat);
}

GradientSums::Open& GradientSums::open_leaf(Backend& backend, int flat, int64_t leaf) {
  Flat& f = at(flat);
  const auto open = std::find_if(f.open.begin(), f.open.end(), [&](const Open& o) { return o.leaf == leaf; });
  if (open != f.open.end()) return *open;
  if (order().reduces_each()) {
    if (!transient_.has_free(of(flat).size())) wait_reductions(backend);
    const int buffer = transient_.take(of(flat).size());
    std::fill(transient_written_[size_t(buffer)].begin(), transient_written_[size_t(buffer)].end(), char(false));
    for (const Run& gap : f.gaps) backend.run(Zero{.x = transient_[buffer].slice_rows(gap.first, gap.count)});
    return f.open.emplace_back(Open{leaf, buffer});
  }
  const int buffer = f.tree.take();
  WEFT_CHECK(size_t(buffer) < f.buffers.size(), "{} keeps more gradients than planned", of(flat).name);
  std::fill(f.written[size_t(buffer)].begin(), f.written[size_t(buffer)].end(), char(false));
  return f.open.emplace_back(Open{leaf, buffer});
}

void GradientSums::point(int flat, const Tensor& whole, std::vector<char>& written) {
  for (size_t i = 0; i < of(flat).params.size(); ++i) {
    Param& p = *of(flat).params[i];
    if (p.tied_to_ != nullptr && of(flat).has_values()) continue;
    p.grad = whole.slice_rows(p.offset_, p.shape().elements()).reshape(p.shape()).placed(p.spec().place.dual());
    p.written_ = &written[i];
  }
}

// Ties: a gradient of their own in a mirror, or their owner's, whose leaf must then be open. It stays so for longer
// than this one, so it is the first to take the buffer that fits it.
void GradientSums::open_owners(Backend& backend, int flat, int64_t micro_batch) {
  if (!of(flat).has_values()) return;
  for (const Param* p : of(flat).params) {
    if (p->tied_to_ == nullptr) continue;
    const int holder = order().separate_ties() ? p->flat_ : p->tied_to_->flat_;
    if (holder != flat) open(backend, holder, micro_batch);
  }
}

void GradientSums::point_ties(int flat) {
  if (!of(flat).has_values() || order().separate_ties()) return;
  for (Param* p : of(flat).params) {
    if (p->tied_to_ == nullptr) continue;
    p->grad = p->tied_to_->grad;
    p->written_ = p->tied_to_->written_;
  }
}

void GradientSums::flush(Backend& backend, int flat, int64_t micro_batch, bool last) {
  if (order().separate_ties() && of(flat).has_values())
    for (const Param* p : of(flat).params)
      if (p->tied_to_ != nullptr) flush(backend, p->flat_, micro_batch, last);
  if (!last || (!order().reduces_each() && !order().ends_leaf(micro_batch))) return;
  Flat& f = at(flat);
  const int64_t leaf = order().leaf_of(micro_batch);
  const auto open = std::find_if(f.open.begin(), f.open.end(), [&](const Open& o) { return o.leaf == leaf; });
  WEFT_CHECK(open != f.open.end(), "flush of {}, whose gradients are not open", of(flat).name);
  const int buffer = open->buffer;
  f.open.erase(open);
  if (order().reduces_each()) return reduce_each(backend, flat, micro_batch, buffer);
  settle(backend, flat, {0, leaf}, buffer);
  if (order().tree || order().ranks == 1) return;
  begin_reduction(backend, flat, f.buffers[size_t(buffer)]);
}

void GradientSums::pass_over(int flat, int64_t first, int64_t end) {
  if (!order().tree || first >= end) return;
  if (of(flat).has_values())  // ties have trees of their own
    for (const Param* p : of(flat).params)
      if (p->tied_to_ != nullptr) pass_over(p->flat_, first, end);
  if (of(flat).size() == 0) return;
  const int64_t per = order().reduces_each() ? order().ranks : 1,
                begin = order().reduces_each() ? 0 : order().leaf_of(0);
  TreeSum& tree = at(flat).tree;
  for (const TreeNode& node : tree_cover(order().num_leaves(), {begin + first * per, (end - first) * per}))
    tree.settle(node, tree.take(), [](int, int) {});
}

void GradientSums::settle(Backend& backend, int flat, TreeNode node, int buffer) {
  Flat& f = at(flat);
  f.tree.settle(node, buffer, [&](int into, int from) {
    const Tensor &sum = f.buffers[size_t(into)], &more = f.buffers[size_t(from)];
    backend.run(Add{.x = sum, .y = more, .out = sum});
  });
}

// One micro-batch of every rank: each rank's shard (with a tree: share) of their sum.
void GradientSums::reduce_each(Backend& backend, int flat, int64_t micro_batch, int buffer) {
  const int64_t size = of(flat).size();
  const Tensor whole = transient_[buffer].slice_rows(0, size);
  if (order().tree && size > 0) exchange_leaves(backend, flat, micro_batch, whole);
  if (order().tree || size == 0) return transient_.give(buffer);
  wait_reductions(backend);
  begin_reduction(backend, flat, whole, buffer);
}

// Each rank's shard of the sum over all ranks of the shards. Replicas of it follow (wait_replicas), where there are.
void GradientSums::begin_reduction(Backend& backend, int flat, const Tensor& whole, int transient) {
  const int64_t size = of(flat).size();
  if (size == 0) return;
  Reduction r{.flat = flat, .whole = whole, .transient = transient, .narrow = -1, .work = {}};
  Tensor sent = whole;
  if (format_.narrows()) {
    while (!narrow_.has_free(size)) wait_oldest_reduction(backend);
    r.narrow = narrow_.take(size);
    sent = narrow_[r.narrow].slice_rows(0, size);
    backend.run(Copy{.from = whole, .to = sent});
  }
  const Run shard = shard_of(flat);
  r.work = order().shards > 1 ? group_.ranks.shards->reduce_scatter(sent, sent.slice_rows(shard.first, shard.count))
                              : group_.ranks.replicas->all_reduce(sent);
  reducing_.push_back(std::move(r));
}

void GradientSums::wait_oldest_reduction(Backend& backend) {
  Reduction r = std::move(reducing_.front());
  reducing_.pop_front();
  r.work.wait();
  Flat& f = at(r.flat);
  const Run shard = shard_of(r.flat);
  const Tensor mine = r.whole.slice_rows(shard.first, shard.count);
  if (r.narrow >= 0) backend.run(Copy{.from = narrow_[r.narrow].slice_rows(shard.first, shard.count), .to = mine});
  if (r.transient >= 0 && std::exchange(f.sums, true))
    backend.run(Add{.x = f.sum, .y = mine, .out = f.sum});
  else if (r.transient >= 0)
    backend.run(Copy{.from = mine, .to = f.sum});
  if (r.narrow >= 0) narrow_.give(r.narrow);
  if (r.transient >= 0) transient_.give(r.transient);
}

// Until every rank's shard is the sum over all ranks, where it is not over a tree.
void GradientSums::wait_replicas() {
  if (order().tree || order().shards == 1 || group_.replica().size == 1) return;
  for_each([&](int flat) { at(flat).replicas = group_.ranks.replicas->all_reduce(shard(flat)); });
  for_each([&](int flat) { at(flat).replicas.wait(); });
}

// The leaves of all ranks, in their order, to the tree of this rank's share.
void GradientSums::exchange_leaves(Backend& backend, int flat, int64_t micro_batch, const Tensor& whole) {
  std::vector<Work> sent;
  for (int64_t step = 1; step < order().ranks; ++step) {
    const int64_t to = (order().rank + step) % order().ranks;
    const Run theirs = share_of_rank(flat, to);
    sent.push_back(ranks().send(whole.slice_rows(theirs.first, theirs.count), int(to)));
  }
  const Run mine = share_of_rank(flat, order().rank);
  for (int64_t from = 0; from < order().ranks; ++from) {
    const int buffer = at(flat).tree.take();
    WEFT_CHECK(size_t(buffer) < at(flat).buffers.size(), "{} keeps more gradients than planned", of(flat).name);
    if (from == order().rank)
      backend.run(Copy{.from = whole.slice_rows(mine.first, mine.count), .to = at(flat).buffers[size_t(buffer)]});
    else
      ranks().recv(at(flat).buffers[size_t(buffer)], int(from)).wait();
    settle(backend, flat, {0, micro_batch * order().ranks + from}, buffer);
  }
  for (Work& w : sent) w.wait();
}

// Every rank sums its share of the elements over the nodes of all ranks, as the tree says; those that hold a shard
// together give it to each other.
void GradientSums::join_trees(Backend& backend, int flat) {
  const std::vector<TreeSum::Held> mine = at(flat).tree.held();
  std::vector<Work> sent;
  for (int64_t step = 1; step < order().ranks; ++step) {
    const int64_t to = (order().rank + step) % order().ranks;
    const Run theirs = share_of_rank(flat, to);
    for (const auto& h : mine)
      sent.push_back(ranks().send(at(flat).buffers[size_t(h.buffer)].slice_rows(theirs.first, theirs.count), int(to)));
  }
  const Run share = share_of_rank(flat, order().rank);
  std::vector<Tensor> sums(all_nodes_.size());
  const auto receive = [&](int64_t from) {
    for (size_t i = nodes_until_[size_t(from)], own = 0; i < nodes_until_[size_t(from) + 1]; ++i) {
      if (from == order().rank) {
        sums[i] = at(flat).buffers[size_t(mine.at(own++).buffer)].slice_rows(share.first, share.count);
      } else {
        sums[i] = staging_.slice_rows(int64_t(i), 1).reshape({staging_.cols()}).slice_rows(0, share.count);
        ranks().recv(sums[i], int(from)).wait();
      }
    }
  };
  for (int64_t step = 0; step < order().ranks; ++step) receive((order().rank + order().ranks - step) % order().ranks);
  for (Work& w : sent) w.wait();
  TreeSum top(order().num_leaves());
  for (size_t i = 0; i < sums.size(); ++i) WEFT_CHECK(top.take() == int(i), "node {} of a sum is not its buffer", i);
  for (size_t i = 0; i < sums.size(); ++i) {
    top.settle(all_nodes_[i], int(i), [&](int into, int from) {
      backend.run(Add{.x = sums[size_t(into)], .y = sums[size_t(from)], .out = sums[size_t(into)]});
    });
  }
  group_.ranks.replicas->all_gather(sums[size_t(top.root())], shard(flat)).wait();
}

Tensor GradientSums::shard(int flat) const {
  const Flat& f = at(flat);
  if (f.sum) return f.sum;
  const auto held = f.tree.held();
  const Tensor& buffer = f.buffers[held.empty() ? 0 : size_t(held.front().buffer)];
  if (order().reduces_each()) return buffer;
  const Run shard = shard_of(flat);
  return buffer.slice_rows(shard.first, shard.count);
}

void GradientSums::finish_step(Backend& backend) {
  wait_reductions(backend);
  wait_replicas();
  for_each([&](int flat) {
    Flat& f = at(flat);
    if (order().tree && order().reduces_each() && f.sum)
      group_.ranks.replicas->all_gather(f.buffers[size_t(f.tree.root())], f.sum).wait();
    else if (order().tree && !order().reduces_each() && order().ranks > 1)
      join_trees(backend, flat);
    sum_over_tp(flat);
  });
  if (order().separate_ties()) add_ties(backend);
  add_twins(backend);
}

// The gradients of a weight that two stages have: flat parameters of that weight alone, so they are sharded alike.
void GradientSums::add_twins(Backend& backend) {
  for_each([&](int flat) {
    const int peer = of(flat).twin();
    if (peer < 0) return;
    const Tensor mine = shard(flat), theirs = twins_.slice_rows(0, mine.rows());
    Work sent = pipeline_.send(mine, peer);
    pipeline_.recv(theirs, peer).wait();
    sent.wait();
    backend.run(Add{.x = mine, .y = theirs, .out = mine});
  });
}

// The gradients of what tensor-parallel ranks use for different work.
void GradientSums::sum_over_tp(int flat) {
  if (group_.tp->size() == 1) return;
  const Run here = shard_of(flat);
  for (const FlatLayout::Range& r : of(flat).layout.ranges) {
    const Run run = overlap(r.run, here);
    if (is_summed_over_tp(r.held) && run.count > 0)
      group_.tp->all_reduce(shard(flat).slice_rows(run.first - here.first, run.count)).wait();
  }
}

void GradientSums::add_ties(Backend& backend) {
  for_each([&](int flat) {
    if (of(flat).has_values()) return;
    const Run here = shard_of(flat), run = overlap(of(flat).layout.weights[0].run(), here);
    if (run.count == 0) return;
    const auto slice = [&](int of) { return shard(of).slice_rows(run.first - here.first, run.count); };
    const Tensor owner = slice(of(flat).mirrors);
    backend.run(Add{.x = owner, .y = slice(flat), .out = owner});
  });
}

}  // namespace weft
