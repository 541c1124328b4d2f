// Placement alone decides over which ranks a weight is summed: weights that are Replicate on cp, that ep cuts, and
// units that hold both, through whole steps of training on many layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "support.h"
#include "weft/comm/local_group.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/optim/grad_norm.h"
#include "weft/optim/optimizer.h"
#include "weft/optim/weight_norms.h"
#include "weft/sharding/rows_to_save.h"

namespace weft {
namespace {

constexpr int64_t kTokensOfAStep = 48;  // of a step: ranks and micro-batches divide them
constexpr int kUnits = 3;

struct SetsLayout {
  MeshSizes mesh;
  int64_t micro_batches = 1;
  int zero_stage = 0;
  bool tree = false;
  std::string to_string() const {
    return fmt::format("dp {} cp {} tp {} ep {} shards {} stage {} micro-batches {}{}", mesh.dp, mesh.cp, mesh.tp,
                       mesh.ep, mesh.shards, zero_stage, micro_batches, tree ? " tree" : "");
  }
};

// What a token adds to the gradient of an element: an integer, so that any order of sums has the same bits.
double summand(const std::string& weight, int64_t element, int64_t step, int64_t token) {
  return double((element * 7 + token * 5 + step * 3 + int64_t(weight[0])) % 11) - 4;
}
double initial(const std::string& weight, int64_t element) { return std::sin(double(element) + double(weight[0])); }

// What a checkpoint has of an element.
struct Saved {
  double master = 0;
  std::vector<double> states;
  bool operator==(const Saved&) const = default;
};
struct Checkpoint {
  std::map<std::pair<std::string, int64_t>, Saved> elements;
  std::vector<double> norms;
  std::map<std::string, std::vector<double>> weights;  // WeightNorms' sums, of the last step
};

// The masters of all ranks.
struct Masters {
  std::mutex mutex;
  std::map<std::pair<std::string, int64_t>, double> masters;
};

// A model of weights without layers on one rank.
class Rank {
 public:
  Rank(const ProcessMesh& mesh, const SetsLayout& l, const Optimizer& optimizer, Masters& all)
      : mesh_(mesh),
        layout_(l),
        optimizer_(optimizer),
        all_(all),
        store_(kF64,
               {.num_micro_batches = l.micro_batches,
                .tree = l.tree,
                .ranks = l.mesh.dp,
                .rank = mesh[Axis::dp].rank(),
                .zero_stage = l.zero_stage,
                .shards = l.mesh.shards},
               mesh) {
    const std::vector<Part> experts(6, Part{.size = 4});
    const auto expert = [&](const char* name, Spmd tp, bool linear) {
      store_.add({.name = name, .shape = {24, 10}, .place = expert_weights(tp), .parts = experts, .linear = linear});
    };
    store_.add({.name = "a", .shape = {14, 30}, .place = weights(Spmd::Shard0), .linear = true});
    store_.add({.name = "b", .shape = {30}, .place = weights(Spmd::Replicate)});
    store_.close_unit("dense", 0);
    store_.add({.name = "c", .shape = {9, 20}, .place = weights(Spmd::Invariant), .linear = true});
    expert("d", Spmd::Shard0, true);
    store_.add({.name = "e", .shape = {17}, .place = weights(Spmd::Replicate)});
    store_.close_unit("both", 1);
    expert("f", Spmd::Replicate, false);
    expert("g", Spmd::Shard1, true);
    store_.close_unit("experts", 2);
    store_.allocate({params_, grads_, states_, transit_}, optimizer.formats());
    norm_ = std::make_unique<GradNorm>(store_, records_, kUnits);
    weight_norms_ = std::make_unique<WeightNorms>(store_, records_);
  }

  void load(const Checkpoint& from) {
    for_each_element([&](const Param& p, int64_t element, const ParamStore::Stored& s, int64_t at) {
      const auto found = from.elements.find({p.spec().name, element});
      s.master.as<double>()[at] = found == from.elements.end() ? initial(p.spec().name, element) : found->second.master;
      const bool is_new = found == from.elements.end();
      for (size_t k = 0; k < s.states.size(); ++k) {
        if (s.blocks.empty()) {
          s.states[k].as<double>()[at] = is_new ? 0 : found->second.states[k];
          continue;
        }
        s.states[k].as<uint8_t>()[at] = is_new ? 0 : uint8_t(found->second.states[2 * k]);
        absmax_of(s.blocks[k], at) = is_new ? 0 : found->second.states[2 * k + 1];
      }
    });
    store_.masters_changed(backend_);
    expect_values();
  }

  // The norm of the gradients, before they are clipped.
  double step(int64_t index) {
    store_.begin_step();
    for (int64_t m = 0; m < layout_.micro_batches; ++m)
      for (int u = kUnits; u-- > 0;) {
        store_.open_grads(backend_, u, m);
        for (Param* p : store_.params())
          if (unit_of(*p) == u) add_gradient(*p, index, m);
        store_.flush(backend_, u, m, true);
      }
    store_.finish_step(backend_);
    expect_sums(index);
    const double norm = norm_->wait_measure(backend_);
    weights_.clear();
    const auto update = [&] {
      update_all(backend_, optimizer_, store_, scratch_,
                 {.lr = 0.1, .grad_scale = clip_scale(norm, 50), .step = index + 1});
    };
    for (const PartSums& part : weight_norms_->wait_update(backend_, scratch_, true, update)) {
      std::vector<double>& of = weights_[part.param->spec().name];
      of.resize(WeightNorms::kSums);
      for (size_t s = 0; s < of.size(); ++s) of[s] += part.sums[s];
    }
    expect_values();
    return norm;
  }

  const std::map<std::string, std::vector<double>>& changes() const { return weights_; }

  // Each element once, by the rank that writes it.
  void save(Checkpoint& to, std::map<std::pair<std::string, int64_t>, int>& times) const {
    for (const Param* p : store_.params())
      for (const ParamStore::Stored& s : store_.stored(*p)) {
        const Run rows = rows_to_save(store_, *p, s);
        for (int64_t i = rows.first * s.cols.count; i < rows.end() * s.cols.count; ++i) {
          const std::pair key{p->spec().name, element_of(*p, s, i)};
          ++times[key];
          Saved& saved = to.elements[key];
          saved = {s.master.as<double>()[i], {}};
          for (size_t k = 0; k < s.states.size(); ++k) {
            if (s.blocks.empty()) {
              saved.states.push_back(s.states[k].as<double>()[i]);
              continue;
            }
            saved.states.push_back(s.states[k].as<uint8_t>()[i]);
            saved.states.push_back(absmax_of(s.blocks[k], i));
          }
        }
      }
  }

 private:
  static double& absmax_of(const StateBlocks& blocks, int64_t i) {
    return blocks.absmax.as<double>()[blocks.at.index(i) / kCodeBlock - blocks.at.first_block()];
  }
  static int unit_of(const Param& p) { return p.spec().name < "c" ? 0 : p.spec().name < "f" ? 1 : 2; }
  static int64_t element_of(const Param& p, const ParamStore::Stored& s, int64_t i) {
    const int64_t width = p.spec().shape.rank() == 1 ? 1 : p.spec().shape[1];
    return (s.rows.first + i / s.cols.count) * width + s.cols.first + i % s.cols.count;
  }
  template <class F>
  void for_each_element(const F& f) const {
    for (const Param* p : store_.params())
      for (const ParamStore::Stored& s : store_.stored(*p))
        for (int64_t i = 0; i < s.master.elements(); ++i) f(*p, element_of(*p, s, i), s, i);
  }
  // f(element, index in a tensor like the weight on this rank).
  template <class F>
  static void for_each_here(const Param& p, const F& f) {
    const int64_t width = p.spec().shape.rank() == 1 ? 1 : p.spec().shape[1];
    for (const HeldPart& part : p.parts())
      for (int64_t r = 0; r < part.rows.count; ++r)
        for (int64_t c = 0; c < part.cols.count; ++c)
          f((part.rows.first + r) * width + part.cols.first + c, (part.local_row + r) * part.cols.count + c);
  }

  // Those who use a weight for different work share a step's tokens. Read from the axes alone.
  void add_gradient(Param& p, int64_t step, int64_t micro_batch) {
    RankOf of;
    const auto times = [&](int64_t size, int64_t rank) { of = {of.size * size, of.rank * size + rank}; };
    const auto share = [&](Axis axis) { times(mesh_[axis].size(), mesh_[axis].rank()); };
    if (p.spec().place.experts_are_cut()) {
      share(Axis::edp);
    } else {
      share(Axis::dp);
      share(Axis::cp);
    }
    if (p.spec().place.tp() == Spmd::Replicate) share(Axis::tp);
    times(layout_.micro_batches, micro_batch);
    const Run tokens = share_of(kTokensOfAStep, of);
    const bool adds = p.accumulates();
    for_each_here(p, [&](int64_t element, int64_t at) {
      double sum = adds ? p.grad.as<double>()[at] : 0;
      for (int64_t t = tokens.first; t < tokens.end(); ++t) sum += summand(p.spec().name, element, step, t);
      p.grad.as<double>()[at] = sum;
    });
  }
  void expect_sums(int64_t step) const {
    for_each_element([&](const Param& p, int64_t element, const ParamStore::Stored& s, int64_t at) {
      double sum = 0;
      for (int64_t t = 0; t < kTokensOfAStep; ++t) sum += summand(p.spec().name, element, step, t);
      ASSERT_EQ(s.grad.as<double>()[at], sum) << p.spec().name << " " << element;
    });
  }
  // What layers read are the masters, whichever rank keeps them.
  void expect_values() {
    barrier(*mesh_.world);
    {
      const std::lock_guard lock(all_.mutex);
      for_each_element([&](const Param& p, int64_t element, const ParamStore::Stored& s, int64_t at) {
        all_.masters[{p.spec().name, element}] = s.master.as<double>()[at];
      });
    }
    barrier(*mesh_.world);
    for (int u = 0; u < kUnits; ++u) {
      store_.fetch(u);
      if (u + 1 < kUnits) store_.prefetch(u + 1);
      for (const Param* p : store_.params())
        if (unit_of(*p) == u)
          for_each_here(*p, [&](int64_t element, int64_t at) {
            ASSERT_EQ(p->value.as<double>()[at], all_.masters.at({p->spec().name, element})) << p->spec().name;
          });
      store_.release(u);
    }
  }

  const ProcessMesh& mesh_;
  const SetsLayout& layout_;
  const Optimizer& optimizer_;
  Masters& all_;
  Arena params_{"params", 1 << 20}, grads_{"grads", 1 << 20}, states_{"states", 1 << 20}, transit_{"transit", 1 << 20},
      records_{"records", 1 << 16}, scratch_{"scratch", 1 << 20};
  RefBackend backend_{1};
  ParamStore store_;
  std::unique_ptr<GradNorm> norm_;
  std::unique_ptr<WeightNorms> weight_norms_;
  std::map<std::string, std::vector<double>> weights_;  // of the last step
};

// Steps [first, end) from a checkpoint; what is then saved.
Checkpoint train(const SetsLayout& l, const Optimizer& optimizer, const Checkpoint& from, int64_t first, int64_t end) {
  Checkpoint all;
  std::map<std::pair<std::string, int64_t>, int> times;
  std::mutex mutex;
  Masters masters;
  run_local(l.mesh, [&](const ProcessMesh& mesh) {
    Rank rank(mesh, l, optimizer, masters);
    rank.load(from);
    std::vector<double> norms;
    for (int64_t s = first; s < end; ++s) norms.push_back(rank.step(s));
    const std::lock_guard lock(mutex);
    rank.save(all, times);
    if (all.norms.empty()) all.norms = norms;
    EXPECT_EQ(all.norms, norms) << "not the same on every rank";
    if (all.weights.empty()) all.weights = rank.changes();
    EXPECT_EQ(all.weights, rank.changes()) << "not the same on every rank";
  });
  for (const auto& [element, count] : times) EXPECT_EQ(count, 1) << element.first << " " << element.second;
  return all;
}

void expect_same(const Checkpoint& a, const Checkpoint& b) {
  ASSERT_EQ(a.elements.size(), b.elements.size());
  for (auto x = a.elements.begin(), y = b.elements.begin(); x != a.elements.end(); ++x, ++y) {
    const auto& [name, element] = x->first;
    ASSERT_EQ(x->first, y->first);
    ASSERT_NEAR(x->second.master, y->second.master, 1e-12) << name << " " << element;
    ASSERT_EQ(x->second.states.size(), y->second.states.size());
    for (size_t k = 0; k < x->second.states.size(); ++k)
      ASSERT_NEAR(x->second.states[k], y->second.states[k], 1e-9) << name << " " << element;
  }
  for (size_t i = 0; i < std::min(a.norms.size(), b.norms.size()); ++i)
    EXPECT_NEAR(a.norms[i], b.norms[i], 1e-12 * b.norms[i]);
}

const std::vector<SetsLayout> kSetsLayouts = {
    {.mesh = {.cp = 2}},
    {.mesh = {.dp = 2, .ep = 2}},
    {.mesh = {.dp = 2, .cp = 2, .ep = 2}, .micro_batches = 2},
    {.mesh = {.dp = 2, .cp = 3, .ep = 6}},
    {.mesh = {.dp = 2, .cp = 2, .tp = 2, .ep = 2}},
    {.mesh = {.dp = 2, .cp = 2, .shards = 4}, .micro_batches = 3, .zero_stage = 1},
    {.mesh = {.dp = 4, .cp = 2, .ep = 2, .shards = 4}, .micro_batches = 2, .zero_stage = 2},
    {.mesh = {.dp = 2, .cp = 2, .ep = 2, .shards = 4}, .micro_batches = 2, .zero_stage = 3},
    {.mesh = {.dp = 2, .cp = 2, .tp = 2, .ep = 4, .shards = 2}, .zero_stage = 3},
    {.mesh = {.dp = 2, .cp = 2, .ep = 2}, .micro_batches = 2, .tree = true},
    {.mesh = {.dp = 2, .cp = 2, .ep = 2, .shards = 2}, .micro_batches = 3, .zero_stage = 2, .tree = true},
    {.mesh = {.dp = 4, .cp = 2, .tp = 2, .ep = 4, .shards = 8, .order = mesh_order("dp-cp-tp-ep-pp").value()},
     .zero_stage = 1}};

TEST(ReplicaSets, WeightsOfCpAndExpertsAreReducedNormedClippedSavedAndResumed) {
  // "a" (420 elements) and "c" alone have 8-bit moments, or all but "e".
  for (const auto& optimizer :
       {make_adamw({}), make_muon({}), make_adamw8bit({.min_size = 100}), make_adamw8bit({.min_size = 18})}) {
    const Checkpoint one = train({}, *optimizer, {}, 0, 4), half = train({}, *optimizer, {}, 0, 2);
    ASSERT_EQ(one.elements.size(), 14u * 30 + 30 + 9 * 20 + 17 + 3 * 24 * 10);
    EXPECT_GT(one.norms[0], 100) << "nothing is clipped";
    for (const SetsLayout& l : kSetsLayouts) {
      SCOPED_TRACE(l.to_string());
      expect_same(train(l, *optimizer, {}, 0, 4), one);
      Checkpoint resumed = train(l, *optimizer, half, 2, 4);
      resumed.norms.clear();
      expect_same(resumed, one);
    }
  }
}

// Sums of squares of what two checkpoints hold.
void expect_changes(const Checkpoint& now, const Checkpoint& before, const Checkpoint& after) {
  std::map<std::string, std::vector<double>> expected;
  for (const auto& [key, saved] : after.elements) {
    std::vector<double>& of = expected[key.first];
    of.resize(WeightNorms::kSums);
    const double then = before.elements.at(key).master, change = saved.master - then;
    of[WeightNorms::before] += then * then;
    of[WeightNorms::after] += saved.master * saved.master;
    of[WeightNorms::change] += change * change;
  }
  ASSERT_EQ(now.weights.size(), expected.size());
  for (const auto& [name, sums] : expected)
    for (size_t s = 0; s < sums.size(); ++s) {
      EXPECT_GT(sums[s], 0) << name;
      EXPECT_NEAR(now.weights.at(name)[s], sums[s], 1e-11 * sums[s]) << name << " " << s;
    }
}

TEST(ReplicaSets, NormsOfWeightsAndOfTheirChangesAreThoseOfTwoCheckpoints) {
  for (const auto& optimizer : {make_adamw({}), make_muon({}), make_adamw8bit({.min_size = 100}), make_sgd({})}) {
    const Checkpoint before = train({}, *optimizer, {}, 0, 2), after = train({}, *optimizer, {}, 0, 3);
    expect_changes(after, before, after);
    for (const SetsLayout& l : kSetsLayouts) {
      SCOPED_TRACE(l.to_string());
      expect_changes(train(l, *optimizer, before, 2, 3), before, after);
    }
  }
}

TEST(ReplicaSets, WhatNoGroupSumsIsRefused) {
  ParamStore store(kF64, {});
  const auto experts = expert_weights(Spmd::Invariant);
  for (const Placement place :
       {Placement(Spmd::Replicate, Spmd::Invariant, Spmd::Invariant), Placement(),
        Placement(Spmd::Replicate, Spmd::None, Spmd::Replicate), experts.with(Axis::ep, Spmd::None),
        experts.with(Axis::ep, Spmd::Invariant), experts.with(Axis::dp, Spmd::Replicate)}) {
    const auto error = testing::error_of([&] { store.add({.name = "w", .shape = {4, 4}, .place = place}); });
    EXPECT_EQ(error, "w is " + place.to_string() +
                         ": a weight is Replicate on dp and cp, or Replicate on edp and Shard0 on ep");
  }
}

TEST(ReplicaSets, ThereMustBeAnExpertForEveryRank) {
  run_local(MeshSizes{.dp = 3, .ep = 3}, [](const ProcessMesh& mesh) {
    ParamStore store(kF64, {.ranks = 3, .rank = mesh.dense.all->rank()}, mesh);
    const auto error = testing::error_of([&] {
      store.add({.name = "w", .shape = {4, 4}, .place = expert_weights(Spmd::Invariant), .parts = {{2}, {2}}});
    });
    EXPECT_EQ(error, "w has 2 experts, which cannot be cut over 3 expert-parallel ranks");
  });
}

}  // namespace
}  // namespace weft
