#include "weft/page/plan_map.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "weft/base/error.h"
#include "weft/models/transformer.h"
#include "weft/plan/phase_plans.h"
#include "weft/sharding/param_store.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

struct MappedTensor {
  ParamSpec spec;
  DType dtype = DType::f32;
  bool has_codes = false;
  std::map<std::optional<int64_t>, std::vector<int>> held = {};  // ranks, by the bytes that each has; none: not known
};

class TensorMap {
 public:
  TensorMap(const Recipe& recipe, const RunPlan& run, const std::atomic<bool>& stops)
      : recipe_(recipe), run_(run), sizes_(run.step.mesh), is_sharded_(recipe.parallel.zero_stage >= 3) {
    for (int rank = 0; rank < sizes_.world(); ++rank) {
      if (stops) throw Error("the plan is not finished: the page ends");
      add_rank(rank);
    }
  }
  Json json() const {
    Json all = Json::array();
    for (const std::string& name : order_) {
      const MappedTensor& t = tensors_.at(name);
      Json shape = Json::array(), held = Json::array();
      for (int dim = 0; dim < t.spec.shape.rank(); ++dim) shape.push_back(t.spec.shape[dim]);
      for (const auto& [bytes, ranks] : t.held)
        held.push_back({{"ranks", ranks}, {"bytes", bytes ? Json(*bytes) : Json()}});
      all.push_back({{"name", name},
                     {"shape", shape},
                     {"dtype", t.has_codes ? "codes" : name_of(t.dtype)},
                     {"bytes", t.has_codes ? Json() : Json(t.spec.shape.elements() * size_of(t.dtype))},
                     {"trained", t.spec.learns()},
                     {"placement", t.spec.place.to_string()},
                     {"held", held}});
    }
    return all;
  }

 private:
  // Ranks of a stage that cut weights alike share their declarations.
  struct Declared {
    std::unique_ptr<ParamStore> store;
    std::unique_ptr<Transformer> model;
  };
  const StepSpec& step_of_stage(int stage, int rank) {
    const auto known = steps_.find(stage);
    return known != steps_.end() ? known->second : steps_.emplace(stage, step_of(recipe_, run_, rank)).first->second;
  }
  void add_rank(int rank) {
    const MeshPlace place = place_of(sizes_, rank);
    const StepSpec& step = step_of_stage(place.pp, rank);
    const ProcessMesh mesh = dry_mesh(sizes_, rank);
    GradientOrder order = step.order;
    order.rank = place.dp;
    std::vector<int64_t> key{place.pp};
    std::map<ReplicaSet, int64_t> shards;
    for (const ReplicaSet set : kReplicaSets) {
      const ReplicaGroup group = replica_group(mesh, set, order);
      key.insert(key.end(), {group.cut().tp.rank, group.cut().ep.rank});
      shards[set] = group.shard().rank;
    }
    Declared& declared = declared_[key];
    if (declared.store == nullptr) {
      declared.store = std::make_unique<ParamStore>(step.precision, order, mesh);
      declared.model = std::make_unique<Transformer>(*declared.store, run_.model, step.model);
    }
    for (const Param* p : declared.store->params(ParamStore::Copies::with)) add(*declared.store, *p, shards, rank);
  }
  void add(const ParamStore& store, const Param& p, const std::map<ReplicaSet, int64_t>& shards, int rank) {
    const ParamSpec& spec = p.spec();
    auto at = tensors_.find(spec.name);
    if (at == tensors_.end()) {
      order_.push_back(spec.name);
      at = tensors_.emplace(spec.name, MappedTensor{.spec = spec}).first;
      at->second.has_codes = spec.in_codes();
      const bool in_stat = spec.in_stat || spec.update == Update::its_layer;
      at->second.dtype = in_stat ? store.precision().stat : store.precision().compute;
    }
    const ReplicaGroup& group = store.group_of(p);
    const bool is_cut = is_sharded_ && group.shard().size > 1;
    std::optional<int64_t> bytes;
    if (spec.in_codes()) {
      if (!is_cut) bytes = p.kept_elements();
    } else {
      int64_t elements = 0;
      for (size_t part = 0; part < p.parts().size(); ++part) {
        const HeldPart& held = p.parts()[part];
        elements += is_cut ? std::max<int64_t>(0, store.kept(p, part, group.cut(), shards.at(group.set)).count)
                           : held.rows.count * held.cols.count;
      }
      bytes = elements * size_of(at->second.dtype);
    }
    if (bytes != 0) at->second.held[bytes].push_back(rank);
  }

  const Recipe& recipe_;
  const RunPlan& run_;
  const MeshSizes sizes_;
  const bool is_sharded_;
  std::map<int, StepSpec> steps_;  // [stage]
  std::map<std::vector<int64_t>, Declared> declared_;
  std::map<std::string, MappedTensor> tensors_;
  std::vector<std::string> order_;  // their names, as the model has them
};

Json json_of_class(const RankClass& c, size_t number) {
  Json out{{"class", number}, {"rank", c.rank}, {"ranks", c.ranks}, {"total_bytes", c.plan.total_bytes()}};
  out["memory"] = Json::array();
  for (const MemoryPlan::Row& row : c.plan.rows())
    out["memory"].push_back({{"name", row.name}, {"meaning", row.meaning}, {"bytes", row.bytes()}});
  out["communication"] = Json::array();
  for (const auto& [what, count] : c.plan.traffic.counts())
    out["communication"].push_back(
        {{"axis", what.first}, {"kind", name_of(what.second)}, {"calls", count.calls}, {"bytes_sent", count.bytes}});
  return out;
}

}  // namespace

Json plan_map(const Recipe& recipe, const WorkspaceModel& workspace, const std::atomic<bool>& stops) {
  const std::vector<PlannedSpan> phases = plan_phases(recipe, workspace);
  const PlannedSpan& largest = largest_of(phases);
  const LayoutPlan& plan = *largest.layout;
  const MeshSizes& sizes = plan.run.step.mesh;
  Json out{{"world", sizes.world()},
           {"axes", {{"dp", sizes.dp}, {"tp", sizes.tp}, {"pp", sizes.pp}, {"cp", sizes.cp}, {"ep", sizes.ep}}},
           {"num_params", plan.run.memory.arithmetic.num_params},
           {"num_trained", plan.run.memory.arithmetic.num_trained}};
  out["classes"] = Json::array();
  for (size_t i = 0; i < plan.classes.size(); ++i) out["classes"].push_back(json_of_class(plan.classes[i], i));
  const size_t tensors = all_params(plan.run.model).size();
  if (sizes.world() > kMostMapRanks || tensors > kMostMapTensors || int64_t(tensors) * sizes.world() > kMostMapPairs) {
    out["tensors_reason"] =
        fmt::format("{} ranks and {} tensors: the map has at most {} ranks, {} tensors, and {} pairs of them",
                    sizes.world(), tensors, kMostMapRanks, kMostMapTensors, kMostMapPairs);
    return out;
  }
  out["tensors"] = TensorMap(largest.span.recipe, plan.run, stops).json();
  return out;
}

}  // namespace weft
