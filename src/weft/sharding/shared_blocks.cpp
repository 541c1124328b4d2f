#include "weft/sharding/shared_blocks.h"

#include <map>

#include "weft/sharding/param_store.h"

namespace weft {
namespace {

// The blocks that a rank touches.
struct Touched {
  Run blocks;
  int64_t shard, tp;
};

// The blocks that are in intervals of more than one rank, as `rank` numbers them.
template <class Rank>
std::vector<Run> of_several(const std::vector<Touched>& all, const Rank& rank) {
  std::map<int64_t, std::vector<std::pair<int64_t, int>>> changes;  // [block] (rank, one more or one less)
  for (const Touched& t : all) {
    changes[t.blocks.first].emplace_back(rank(t), 1);
    changes[t.blocks.end()].emplace_back(rank(t), -1);
  }
  std::vector<Run> runs;
  std::map<int64_t, int> now;
  bool several = false;
  for (const auto& [block, here] : changes) {
    for (const auto& [which, more] : here)
      if ((now[which] += more) == 0) now.erase(which);
    if (several == (now.size() > 1)) continue;
    several = !several;
    if (several)
      runs.push_back({block, 0});
    else
      runs.back().count = block - runs.back().first;
  }
  return runs;
}

}  // namespace

std::vector<std::vector<HeldPart>> parts_over_tp(const ParamSpec& weight, const ReplicaGroup& group) {
  std::vector<std::vector<HeldPart>> all;
  CutRanks at = group.cut();
  for (at.tp.rank = 0; at.tp.rank < at.tp.size; ++at.tp.rank) all.push_back(held_parts(weight, at));
  return all;
}

SharedBlocks shared_blocks(const ParamSpec& weight, std::span<const std::vector<HeldPart>> over_tp, size_t part,
                           const WhereCut& where) {
  const RankOf tp = where.group.cut().tp;
  const bool is_alike = !is_cut(over_tp[0][part].held);
  const int64_t shards = where.group.shard().size, each = where.layout.size / shards;
  std::vector<Touched> all;
  for (int64_t t = 0; t < tp.size; ++t) {
    if (is_alike && t != tp.rank) continue;
    const HeldPart& there = over_tp[size_t(t)][part];
    const Run run{where.offset + there.local_row * there.cols.count, there.rows.count * there.cols.count};
    for (int64_t shard = run.first / each; run.count > 0 && shard * each < run.end(); ++shard) {
      const Run kept = overlap(run, where.layout.shard({shards, shard}));
      const CodeBlocks at = code_blocks(weight, there).from(kept.first - run.first);
      all.push_back({.blocks = {at.first_block(), at.num_blocks(kept.count)}, .shard = shard, .tp = t});
    }
  }
  return {.over_shards = of_several(all, [](const Touched& t) { return t.shard; }),
          .over_tp = of_several(all, [](const Touched& t) { return t.tp; })};
}

namespace {

int64_t total(const std::vector<Run>& runs) {
  int64_t n = 0;
  for (const Run& run : runs) n += run.count;
  return n;
}

// Numbers of the blocks that ranks of one axis share, of a group's parts one after the other, and of each state.
class SharedMaxima {
 public:
  struct OfPart {
    const ParamStore::CodedState* state;
    const std::vector<Run>* blocks;
    int64_t first;  // among all
  };
  SharedMaxima(Backend& backend, Communicator& ranks, int64_t num_states)
      : backend_(backend), ranks_(ranks), num_states_(num_states) {}
  void add(const ParamStore::CodedState& part, const std::vector<Run>& blocks) {
    if (ranks_.size() == 1 || blocks.empty()) return;
    parts_.push_back({&part, &blocks, num_blocks_});
    num_blocks_ += total(blocks);
  }
  void allocate(Arena& scratch, DType dtype) {
    if (num_blocks_ == 0) return;
    numbers_ = scratch.alloc(dtype, {num_blocks_ * num_states_});
    gathered_ = scratch.alloc(dtype, {ranks_.size() * numbers_.elements()});
    backend_.run(Zero{.x = numbers_});
  }
  // Calls f(these numbers, the same ones of `maxima`) for the blocks that both have.
  template <class F>
  void for_each_in(const BlockMaxima& maxima, const F& f) const {
    for (const OfPart& p : parts_) {
      if (p.state->param != maxima.param || p.state->part != maxima.part) continue;
      for_each_run(p, {maxima.first_block, maxima.maxima[0].elements()}, [&](Run blocks, int64_t at) {
        for (size_t k = 0; k < maxima.maxima.size(); ++k)
          f(of(int64_t(k), {at, blocks.count}),
            maxima.maxima[k].slice_rows(blocks.first - maxima.first_block, blocks.count));
      });
    }
  }
  // The same for what another axis shares too.
  template <class F>
  void for_each_in(const SharedMaxima& other, const F& f) const {
    for (const OfPart& p : parts_)
      for (const OfPart& q : other.parts_) {
        if (p.state != q.state) continue;
        int64_t there = q.first;
        for (const Run& run : *q.blocks) {
          for_each_run(p, run, [&](Run blocks, int64_t at) {
            for (int64_t k = 0; k < num_states_; ++k)
              f(of(k, {at, blocks.count}), other.of(k, {there + blocks.first - run.first, blocks.count}));
          });
          there += run.count;
        }
      }
  }
  void wait_join() {
    if (num_blocks_ == 0) return;
    ranks_.all_gather(numbers_, gathered_).wait();
    backend_.run(MaxRows{.x = gathered_.reshape({ranks_.size(), numbers_.elements()}), .out = numbers_});
  }

 private:
  Tensor of(int64_t state, Run run) const { return numbers_.slice_rows(state * num_blocks_ + run.first, run.count); }
  // Calls f(blocks, place among all of the first) for those of a part's blocks that are in a run.
  template <class F>
  void for_each_run(const OfPart& p, Run in, const F& f) const {
    int64_t at = p.first;
    for (const Run& run : *p.blocks) {
      const Run both = overlap(run, in);
      if (both.count > 0) f(both, at + both.first - run.first);
      at += run.count;
    }
  }

  Backend& backend_;
  Communicator& ranks_;
  int64_t num_states_, num_blocks_ = 0;
  std::vector<OfPart> parts_;
  Tensor numbers_, gathered_;
};

void wait_join_of_group(Backend& backend, const ParamStore& store, Arena& scratch, std::span<const BlockMaxima> here,
                        SharedMaxima& over_shards, SharedMaxima& over_tp) {
  Scope temporaries(scratch);
  for (SharedMaxima* shared : {&over_shards, &over_tp}) shared->allocate(scratch, store.precision().stat);
  const auto take = [&](const Tensor& to, const Tensor& from) { backend.run(Copy{.from = from, .to = to}); };
  const auto give = [&](const Tensor& from, const Tensor& to) { backend.run(Copy{.from = from, .to = to}); };
  for (const BlockMaxima& maxima : here) over_shards.for_each_in(maxima, take), over_tp.for_each_in(maxima, take);
  over_shards.wait_join();
  over_tp.for_each_in(over_shards, take);  // also of blocks that only another shard's ranks touch
  over_tp.wait_join();
  for (const BlockMaxima& maxima : here) over_shards.for_each_in(maxima, give), over_tp.for_each_in(maxima, give);
}

}  // namespace

void wait_join_maxima(Backend& backend, const ParamStore& store, int unit, int64_t num_states, Arena& scratch,
                      std::span<const BlockMaxima> here) {
  const std::vector<ParamStore::CodedState> parts = store.coded_states(unit);
  for (const ReplicaGroup* group : store.groups()) {
    SharedMaxima over_shards(backend, *group->ranks.shards, num_states), over_tp(backend, *group->tp, num_states);
    for (const ParamStore::CodedState& part : parts) {
      if (part.group != group) continue;
      over_shards.add(part, part.shared.over_shards);
      over_tp.add(part, part.shared.over_tp);
    }
    wait_join_of_group(backend, store, scratch, here, over_shards, over_tp);
  }
}

}  // namespace weft
