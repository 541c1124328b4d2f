#include "weft/sharding/param_store.h"

#include <algorithm>
#include <utility>

namespace weft {

ParamStore::ParamStore(Precision precision, GradientOrder order, const ProcessMesh& mesh, WeightUse use)
    : precision_(precision), use_(use), order_(order), mesh_(mesh) {
  const ReplicaRanks& dense = mesh.dense;
  const int dp_rank = place_of(mesh.sizes, mesh.world->rank()).dp;
  WEFT_CHECK(mesh.sizes.dp == order.ranks && dp_rank == order.rank, "data-parallel rank {} of {}, planned {} of {}",
             dp_rank, mesh.sizes.dp, order.rank, order.ranks);
  WEFT_CHECK(dense.shards->size() == order.shards && (order.shards > 1) == (order.zero_stage > 0),
             "{} shards of a mesh for ZeRO stage {} over {}", dense.shards->size(), order.zero_stage, order.shards);
  set(size_t(ReplicaSet::dense));
}

ParamStore::Set& ParamStore::set(size_t which) {
  std::unique_ptr<Set>& set = sets_[which];
  if (set == nullptr) {
    const bool of_layers = which == kOfLayers, in_stat = which == kInStat, in_codes = which >= kInCodes,
               frozen = which >= kFrozen && which < kOfLayers;
    const ReplicaSet ranks = in_codes             ? ReplicaSet(which - kInCodes)
                             : which >= kOfLayers ? ReplicaSet::dense
                                                  : ReplicaSet(which % kFrozen);
    const ReplicaGroup group = of_layers ? group_without_shards(mesh_, order_) : replica_group(mesh_, ranks, order_);
    const Precision precision = of_layers || in_stat ? Precision{precision_.stat, precision_.stat} : precision_;
    const WeightUse use = in_codes ? WeightUse::frozen_in_codes : frozen ? WeightUse::frozen : use_;
    set = std::make_unique<Set>(group, weight_format(precision, group.order, use), *mesh_.pp);
    set->learns = which < kFrozen || in_stat;
    set->flat_of.assign(units_.size(), -1);
  }
  return *set;
}

void ParamStore::adapt(AdapterSpec adapter) {
  WEFT_CHECK(all_.empty(), "weights were added before the adapter was known");
  adapter_ = std::move(adapter);
}

Param& ParamStore::add(ParamSpec spec) {
  if (adapter_ && !spec.is_adapter && !(spec.is_score && adapter_->trains_score) && spec.learns()) {
    spec.update = Update::nobody;
    if (spec.linear && !spec.always_numbers) spec.codes = adapter_->base_codes;
  }
  const CutRanks here = set(index_of_set(spec)).group.cut();
  pending_.push_back(all_.emplace_back(std::make_unique<Param>(std::move(spec), here, precision_.stat)).get());
  return *pending_.back();
}

Param& ParamStore::tie(Param& owner) {
  Param& p = add(owner.spec());
  p.tied_to_ = &owner;
  return p;
}

int ParamStore::close_unit(std::string name, int64_t position) {
  const Unit& unit = units_.emplace_back(Unit{std::move(name), std::exchange(pending_, {})});
  for (const Param* p : unit.params)
    WEFT_CHECK(p->spec().twin < 0 || unit.params.size() == 1, "{} has a twin and shares unit {}", p->spec().name,
               unit.name);
  for_each_set([&](Set& set) {
    std::vector<Param*> these;
    std::copy_if(unit.params.begin(), unit.params.end(), std::back_inserter(these),
                 [&](const Param* p) { return &set_of(*p) == &set; });
    if (these.empty())
      set.flat_of.push_back(-1);
    else
      add_flat(set, unit.name, position, std::move(these));
  });
  return num_units() - 1;
}

void ParamStore::add_flat(Set& set, std::string name, int64_t position, std::vector<Param*> params) {
  const int index = int(set.flats.all.size());
  set.flat_of.push_back(index);
  std::vector<const Param*> owned;
  for (Param* p : params) {
    p->flat_ = index;
    if (p->tied_to_ == nullptr) owned.push_back(p);
  }
  FlatLayout layout = flat_layout(std::move(owned), set.group.order.ranks);
  for (Param* p : params)
    for (const FlatLayout::Weight& w : layout.weights)
      if (w.param == p) p->offset_ = w.first;
  set.flats.all.push_back(
      {.name = std::move(name), .position = position, .params = std::move(params), .layout = std::move(layout)});
  if (order_.separate_ties()) set.flats.add_mirrors(index);
}

void ParamStore::used_together(const std::vector<int>& units) {
  for_each_set([&](Set& set) {
    std::vector<int>& flats = set.flats.together.emplace_back();
    for (const int unit : units)
      if (set.flat_of[size_t(unit)] >= 0) flats.push_back(set.flat_of[size_t(unit)]);
  });
}

void ParamStore::allocate_values(Arena& params, Arena& transit) {
  WEFT_CHECK(pending_.empty(), "a unit is still open");
  memory_ = params.memory();
  for_each_set([&](Set& set) { set.values.allocate(params, transit); });
}

void ParamStore::allocate_frozen(Arena& params, Arena& transit) {
  WEFT_CHECK(use_ == WeightUse::frozen, "weights to be trained need gradients");
  allocate_values(params, transit);
}

void ParamStore::borrow(ParamStore& lender) {
  WEFT_CHECK(use_ == WeightUse::frozen && pending_.empty(), "weights to be trained need values of their own");
  WEFT_CHECK(num_units() == lender.num_units(), "{} units borrow those of {}", num_units(), lender.num_units());
  for (int unit = 0; unit < num_units(); ++unit) {
    const std::vector<Param*>&mine = params_of(unit), &theirs = lender.params_of(unit);
    const bool same =
        unit_name(unit) == lender.unit_name(unit) &&
        std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(), [](auto* a, auto* b) {
          return a->spec().name == b->spec().name && a->shape() == b->shape() && a->spec().codes == b->spec().codes;
        });
    WEFT_CHECK(same, "{} cannot borrow the weights of {}", unit_name(unit), lender.unit_name(unit));
  }
  memory_ = lender.memory_;
  lender_ = &lender;
}

// Where they are gathered they may lie elsewhere each time.
void ParamStore::fetch_from_lender(int unit) {
  lender_->fetch(unit);
  const std::vector<Param*>& theirs = lender_->params_of(unit);
  for (size_t i = 0; i < theirs.size(); ++i) {
    Param& mine = *params_of(unit)[i];
    mine.value = theirs[i]->value.placed(mine.spec().place);
  }
}

void ParamStore::allocate(const Arenas& arenas, const StateFormats& formats) {
  WEFT_CHECK(use_ == WeightUse::trained, "frozen weights have no gradients");
  allocate_values(arenas.params, arenas.transit);
  for_each_set([&](Set& set) {
    if (!set.learns) return;
    set.sums.allocate(arenas.grads, arenas.transit);
    set.allocate_states(arenas.states, formats);
  });
}

namespace {

// The code blocks of what a shard keeps of a part.
CodeBlocks blocks_kept(const FlatLayout::StateRun& of, Run kept) {
  return code_blocks(of.param->spec(), of.param->parts()[of.part])
      .from(kept.count == 0 ? 0 : kept.first - of.run.first);
}

}  // namespace

void ParamStore::Set::allocate_states(Arena& arena, const StateFormats& formats) {
  states.resize(flats.all.size());
  shared.resize(flats.all.size());
  for (size_t i = 0; i < states.size(); ++i) {
    const FlatParam& flat = flats.all[i];
    if (!flat.has_values()) continue;
    for (const FlatLayout::StateRun& of : flat.layout.state_runs(formats)) {
      const Run here = overlap(of.run, flat.layout.shard(group.shard()));
      State s{
          .of = of, .run = here, .flat = arena.alloc(of.levels ? DType::u8 : format.state, {here.count}), .blocks = {}};
      if (of.levels) {
        const CodeBlocks at = blocks_kept(of, here);
        s.blocks = {*of.levels, at, arena.alloc(format.state, {at.num_blocks(here.count)})};
      }
      states[i].push_back(std::move(s));
    }
    shared[i] = shared_blocks_of(flat, states[i]);
  }
}

std::vector<SharedBlocks> ParamStore::Set::shared_blocks_of(const FlatParam& flat,
                                                            const std::vector<State>& all) const {
  std::vector<SharedBlocks> blocks;
  const Param* last = nullptr;
  std::vector<std::vector<HeldPart>> parts;  // of it, on each rank of tp
  for (const State& s : all) {
    if (!s.is_first_codes()) continue;
    if (std::exchange(last, s.of.param) != s.of.param) parts = parts_over_tp(s.of.param->spec(), group);
    blocks.push_back(shared_blocks(s.of.param->spec(), parts, s.of.part,
                                   {.group = group, .layout = flat.layout, .offset = s.of.param->offset_}));
  }
  return blocks;
}

ParamStore::StateBytes ParamStore::state_bytes(const StateFormats& formats, const MeshPlace& place) const {
  StateBytes all;
  const auto counted = [](int64_t n, DType dtype) {
    Arena counts("counts");
    counts.alloc(dtype, {n});
    return counts.used();
  };
  for (int unit = 0; unit < num_units(); ++unit) {
    int64_t maxima = 0;
    for_each_learning(unit, [&](const Set& set, int flat) {
      const FlatLayout& layout = set.flats.all[size_t(flat)].layout;
      const int64_t shards = set.group.order.shards, shard = member_at(mesh_.sizes, place, set.group.set) % shards;
      for (const FlatLayout::StateRun& of : layout.state_runs(formats)) {
        const Run here = overlap(of.run, layout.shard({shards, shard}));
        all.states += counted(here.count, of.levels ? DType::u8 : set.format.state);
        if (!of.levels) continue;
        const int64_t blocks = counted(blocks_kept(of, here).num_blocks(here.count), set.format.state);
        all.states += blocks;
        maxima += blocks;
      }
    });
    all.maxima.push_back(maxima);
  }
  return all;
}

std::vector<ParamStore::CodedState> ParamStore::coded_states(int unit) const {
  std::vector<CodedState> all;
  for_each_learning(unit, [&](const Set& set, int flat) {
    if (set.states.empty()) return;
    size_t next = 0;
    for (const State& s : set.states[size_t(flat)])
      if (s.is_first_codes()) all.push_back({&set.group, s.of.param, s.of.part, set.shared[size_t(flat)][next++]});
  });
  return all;
}

// The states of the weights in a run of the flat tensors.
void ParamStore::Set::states_of(int flat, Run run, std::vector<Tensor>& tensors,
                                std::vector<StateBlocks>& blocks) const {
  if (states.empty()) return;
  for (const State& s : states[size_t(flat)]) {
    if (run.first < s.run.first || s.run.end() < run.end()) continue;
    const Run part{run.first - s.run.first, run.count};
    tensors.push_back(s.flat.slice_rows(part.first, part.count));
    if (s.blocks) blocks.push_back(s.blocks->part(part));
  }
}

void ParamStore::masters_changed(Backend& backend) {
  for_each_set([&](Set& set) {
    set.values.round(backend);
    set.values.wait_gathered();
  });
  backend.wait_all();
}

void ParamStore::begins_late(std::string_view name, int64_t steps) {
  for (const auto& p : all_)
    if (p->spec().name == name) p->began_late_ = steps;
}

std::vector<ParamStore::AgeRun> ParamStore::by_age(const FlatLayout& layout, Run run) {
  std::vector<AgeRun> all;
  for (size_t i = 0; i < layout.weights.size(); ++i) {
    const FlatLayout::Weight& w = layout.weights[i];
    const int64_t end = i + 1 < layout.weights.size() ? layout.weights[i + 1].first : layout.size;
    const Run here = overlap(run, {w.first, end - w.first});  // with the padding behind it
    if (here.count == 0) continue;
    if (!all.empty() && all.back().late == w.param->began_late_)
      all.back().run.count += here.count;
    else
      all.push_back({here, w.param->began_late_});
  }
  return all;
}

std::vector<ParamStore::UpdateRange> ParamStore::update_ranges(int unit) const {
  std::vector<UpdateRange> all;
  for_each_learning(unit, [&](const Set& set, int flat) {
    const FlatLayout& layout = set.flats.all[size_t(flat)].layout;
    const Run shard = layout.shard(set.group.shard());
    const auto add_run = [&](const FlatLayout::Range& kind, const AgeRun& of, const State* codes) {
      const Run here = of.run;
      const auto cut = [&](const Tensor& t) { return t.slice_rows(here.first - shard.first, here.count); };
      UpdateRange& range =
          all.emplace_back(UpdateRange{.master = cut(set.values.master(flat)),
                                       .grad = cut(set.sums.shard(flat)),
                                       .value = set.format.rounds() ? cut(set.values.kept_value(flat)) : Tensor{},
                                       .states = {},
                                       .blocks = {},
                                       .decays = kind.decays,
                                       .linear = kind.linear,
                                       .late = of.late});
      set.states_of(flat, here, range.states, range.blocks);
      if (codes != nullptr) range.param = codes->of.param, range.part = codes->of.part;
    };
    const auto add = [&](const FlatLayout::Range& kind, Run here, const State* codes) {
      for (const AgeRun& of : by_age(layout, here)) add_run(kind, of, codes);
    };
    for (const FlatLayout::Range& kind : layout.kinds()) {
      const Run here = overlap(kind.run, shard);
      if (set.states.empty() || set.states[size_t(flat)].empty()) add(kind, here, nullptr);
      for (size_t i = 0; !set.states.empty() && i < set.states[size_t(flat)].size(); ++i) {
        const State& s = set.states[size_t(flat)][i];
        if (s.of.index == 0) add(kind, overlap(here, s.run), s.blocks ? &s : nullptr);
      }
    }
  });
  return all;
}

std::vector<ParamStore::GradRange> ParamStore::grad_ranges() const {
  std::vector<GradRange> all;
  const auto add = [&](const Set& set, int flat, Run run, Spmd held) {
    if (run.count == 0) return;
    const FlatParam& f = set.flats.all[size_t(flat)];
    const Run shard = f.layout.shard(set.group.shard());
    GradRange range{.group = &set.group,
                    .position = f.position,
                    .size = run.count,
                    .first = run.first,
                    .shard_size = shard.count,
                    .held = held,
                    .grad = {}};
    const Run here = range.kept(set.group.shard().rank);
    if (here.count > 0 && set.sums.exist())
      range.grad = set.sums.shard(flat).slice_rows(run.first + here.first - shard.first, here.count);
    all.push_back(std::move(range));
  };
  for_each_set([&](const Set& set) {
    for (int i = 0; set.learns && i < int(set.flats.all.size()); ++i) {
      const FlatParam& flat = set.flats.all[size_t(i)];
      if (!flat.has_values() || flat.is_copy()) continue;
      for (const FlatLayout::Range& r : flat.layout.ranges) {  // what begins within a leaf is a range of its own
        const int64_t begun = std::min((kSumLeaf - r.run.first % kSumLeaf) % kSumLeaf, r.run.count);
        add(set, i, {r.run.first, begun}, r.held);
        add(set, i, {r.run.first + begun, r.run.count - begun}, r.held);
      }
    }
  });
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
  const Set& set = set_of(p);
  WEFT_CHECK(!p.spec().in_codes(), "{} is kept in codes", p.spec().name);
  const Run shard = set.shard_of(p);
  std::vector<Stored> all;
  for (size_t i = 0; i < p.parts().size(); ++i) {
    const HeldPart& part = p.parts()[i];
    const Run here = kept(p, i, set.group.cut(), set.group.shard().rank);
    const int64_t first = p.offset_ + part.local_row * part.cols.count + here.first;  // of the flat tensors
    for_each_rectangle(here, part.cols.count, [&](Run rows, Run cols, int64_t at) {
      const Run run{first + at, rows.count * cols.count};
      const auto shaped = [&](const Tensor& t) { return t.reshape({rows.count, cols.count}); };
      const auto cut = [&](const Tensor& t) { return shaped(t.slice_rows(run.first - shard.first, run.count)); };
      Stored s{.rows = {part.rows.first + rows.first, rows.count},
               .cols = {part.cols.first + cols.first, cols.count},
               .part = int(i),
               .master = cut(set.values.master(p.flat_)),
               .grad = {},
               .states = {},
               .blocks = {}};
      if (set.sums.exist()) s.grad = cut(set.sums.shard(p.flat_));
      set.states_of(p.flat_, run, s.states, s.blocks);
      for (Tensor& t : s.states) t = shaped(t);
      all.push_back(std::move(s));
    });
  }
  return all;
}

Run ParamStore::kept(const Param& p, size_t part, const CutRanks& at, int64_t shard) const {
  const Set& set = set_of(p);
  const HeldPart there = held_parts(p.spec(), at)[part];
  const int64_t begin = p.offset_ + there.local_row * there.cols.count;
  const Run here = overlap({begin, there.rows.count * there.cols.count},
                           set.flats.all[size_t(p.flat_)].layout.shard({set.group.order.shards, shard}));
  return {here.first - begin, here.count};
}

ParamStore::StoredCodes ParamStore::stored_codes(const Param& p) const {
  const Set& set = set_of(p);
  WEFT_CHECK(p.spec().in_codes(), "{} is not kept in codes", p.spec().name);
  const Run shard = set.shard_of(p), here = overlap({p.offset_, p.kept_elements()}, shard);
  if (here.count == 0) return {};
  return {.run = {here.first - p.offset_, here.count},
          .bytes = set.values.master(p.flat_).slice_rows(here.first - shard.first, here.count)};
}

Tensor ParamStore::kept_gradient(const Param& p, size_t part) const {
  const Set& set = set_of(p);
  const Run run = kept(p, part, set.group.cut(), set.group.shard().rank);
  if (run.count == 0) return {};
  const int64_t first = p.offset_ + p.parts()[part].local_row * p.parts()[part].cols.count + run.first;
  return set.sums.shard(p.flat_).slice_rows(first - set.shard_of(p).first, run.count);
}

std::vector<const ReplicaGroup*> ParamStore::groups() const {
  std::vector<const ReplicaGroup*> all;
  for_each_set([&](const Set& set) {
    if (set.learns) all.push_back(&set.group);
  });
  return all;
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
