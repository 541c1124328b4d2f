// `weft plan --serve`: layouts that answer with the recipe's model.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/layout_search.h"
#include "weft/forecast/serving.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

constexpr int64_t kMostTexts = 256;  // of a replica
constexpr double kBytesOfGiB = double(1 << 30);

// Tries layouts, each with one text, two, four, and so on.
class Serving {
 public:
  Serving(const PlanOptions& options, const Recipe& recipe, const ClusterSpec& cluster)
      : o_(options), recipe_(recipe), cluster_(cluster), config_(read_hf_config(recipe.model.path)) {
    require_vocabulary_head(config_.spec, recipe.model.path);
    if (recipe_.adapter.kind != AdapterKind::none)
      throw ConfigError(
          "--serve is of a model whose adapter is merged into it (weft merge); the nearest that works: "
          "adapter.kind=none");
    machine_.workspace_model = std::make_shared<const WorkspaceModel>();
    room_ = cluster.device.memory_bytes - usual_reserve(cluster);
  }

  std::vector<ServingForecast> run(int64_t devices) {
    if (config_.spec.max_positions > 0 && o_.prompt_tokens + o_.max_tokens > config_.spec.max_positions)
      std::cerr << fmt::format("note: texts of {} tokens go beyond the {} positions that config.json names\n",
                               o_.prompt_tokens + o_.max_tokens, config_.spec.max_positions);
    std::vector<ServingForecast> all;
    for (int64_t tp = 1; tp <= devices; ++tp)
      for (int64_t pp = 1; devices % tp == 0 && pp <= devices / tp; ++pp)
        if (devices / tp % pp == 0 && can_be_cut(tp, pp)) try_layout({tp, pp, devices / tp / pp, 1}, all);
    if (all.empty())
      throw ConfigError(nearest_.empty() ? fmt::format("no layout of {} devices can serve this model", devices)
                                         : nearest_);
    return serving_front(std::move(all));
  }

 private:
  Recipe::Parallel parallel_of(const ServingLayout& l) const {
    Recipe::Parallel p;  // the recipe's own is of training
    p.tp = l.tp;
    p.pp = l.pp;
    p.sequence_parallel = false;  // a pass may be of one token
    return p;
  }
  bool can_be_cut(int64_t tp, int64_t pp) const {
    if (tp * pp > cluster_.domain && cluster_.scale_out.bytes_per_s <= 0) return false;  // they do not reach each other
    try {
      check_forward_layout(parallel_of({tp, pp}), config_.spec,
                           {.precision = precision_of(recipe_), .seq_length = 2, .size = 1});
      return true;
    } catch (const ConfigError&) { return false; }
  }

  // One prompt passes while the others have begun.
  TextGenerator::Spec spec_of(const ServingLayout& l, int64_t stage) const {
    const int64_t all = o_.prompt_tokens + o_.max_tokens;
    const MeshSizes mesh{.pp = int(l.pp), .tp = int(l.tp)};
    TextGenerator::Spec spec{.machine = machine_,
                             .precision = precision_of(recipe_),
                             .texts = {{.prompt = o_.prompt_tokens, .all = all}},
                             .layout = parallel_of(l),
                             .mesh = dry_mesh(mesh, rank_at(mesh, {.dp = 0, .pp = int(stage), .cp = 0, .tp = 0}))};
    spec.texts.resize(size_t(l.texts), {.prompt = 1, .all = all});
    return spec;
  }

  void try_layout(ServingLayout l, std::vector<ServingForecast>& all) {
    for (l.texts = std::max<int64_t>(1, o_.texts); l.texts <= std::max(kMostTexts, o_.texts); l.texts *= 2) {
      int64_t most = 0, cache = 0;
      std::vector<ServedStage> stages;
      for (int64_t stage = 0; stage < l.pp; ++stage) {
        const TextGenerator::Needs needs = TextGenerator::measure(config_.spec, spec_of(l, stage));
        if (needs.total() > most) most = needs.total(), cache = needs.cache_bytes;
      }
      if (double(most) > room_) {
        note_too_large(l, most);
        return;
      }
      for (int64_t stage = 0; stage < l.pp; ++stage) {
        TextGenerator::Passes passes = TextGenerator::passes(config_.spec, spec_of(l, stage));
        stages.push_back({std::move(passes.begin), std::move(passes.token), size_of(precision_of(recipe_).compute)});
      }
      all.push_back(
          price_serving(stages, l, {o_.prompt_tokens, o_.max_tokens}, config_.spec, cluster_, Profiles::built_in()));
      all.back().memory_bytes = most;
      all.back().cache_bytes = cache;
      if (o_.texts > 0) return;
    }
  }

  void note_too_large(const ServingLayout& l, int64_t bytes) {
    if (!nearest_.empty() && bytes >= least_) return;
    least_ = bytes;
    nearest_ = fmt::format(
        "nothing fits: tp {} with pp {} and {} text{} comes nearest, {:.1f} of {:.1f} GiB; what works: "
        "more --ranks, or fewer tokens",
        l.tp, l.pp, l.texts, l.texts > 1 ? "s" : "", double(bytes) / kBytesOfGiB, room_ / kBytesOfGiB);
  }

  const PlanOptions& o_;
  const Recipe& recipe_;
  const ClusterSpec& cluster_;
  const HfConfig config_;
  Machine machine_;
  double room_ = 0;
  std::string nearest_;
  int64_t least_ = 0;
};

}  // namespace

int run_plan_serve(const PlanOptions& options) {
  const ClusterSpec cluster = read_cluster(options.cluster);
  const Recipe recipe = read_recipe(options.recipe, options.overrides, true, &cluster);
  if (!cluster.measured.empty())
    throw ConfigError(
        "--serve cannot run on a cluster that was measured ([[measured]]): that is of training's ops, and of replicas "
        "that share memory; the nearest that works: a cluster's file without [[measured]], or a preset");
  int64_t devices = std::max(1, cluster.num_devices);
  if (!options.ranks.empty()) {
    const std::vector<int64_t> counts = device_counts_of(options.ranks, cluster);
    if (counts.size() != 1)
      throw ConfigError(fmt::format("--ranks {}: --serve takes one number of devices", options.ranks));
    devices = counts[0];
  }
  if (cluster.num_devices > 0 && devices > cluster.num_devices)
    throw ConfigError(fmt::format("--ranks {}: the cluster has {} devices", devices, cluster.num_devices));
  const ServingLoad load{options.prompt_tokens, options.max_tokens};
  const std::vector<ServingForecast> front = Serving(options, recipe, cluster).run(devices);
  std::cout << (options.json ? to_json(front, load).dump(1) + "\n" : to_string(front, load, cluster));
  return kExitOk;
}

}  // namespace weft
