#include "weft/forecast/new_recipe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "weft/base/error.h"
#include "weft/forecast/device_precision.h"
#include "weft/forecast/failures.h"
#include "weft/forecast/layout_planner.h"
#include "weft/forecast/scaling_law.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/records/progress.h"

namespace weft {
namespace {

constexpr double kGiBOfDevice = double(1 << 30);
constexpr int64_t kUsualLength = 8192, kTunedLength = 4096, kLongLength = 32768;
constexpr int64_t kMostTokensOfDevice = 1 << 16;  // of a step
constexpr double kTokensOfParameter = 20, kTokensOfContext = 1e9, kSaveEach_s = 1800;
constexpr size_t kMostLayouts = 20000;  // that are forecast one by one, where the search knows no bounds
constexpr size_t kReasons = 2, kColumns = 110;

// A recipe on its way, with why each of its keys is as it is.
struct Draft {
  Recipe recipe = {};
  std::map<std::string, std::string> why = {};  // by key
  std::string summary = {};
};

bool tunes(Purpose p) { return p == Purpose::finetune || p == Purpose::lora; }
bool is_pretrained(Purpose p) { return tunes(p) || p == Purpose::long_context; }

void refuse_unfit(const NewRecipeSpec& spec, const ModelSpec& model, const ClusterSpec& cluster) {
  const auto refuse = [&](const char* why, const char* nearest) {
    throw ConfigError(fmt::format("--purpose {}: {}; the nearest that works: {}", name_of(spec.purpose), why, nearest));
  };
  if (spec.purpose == Purpose::experts && !model.has_experts())
    refuse("the model has no experts", "--purpose pretrain, or a model with experts, as Mixtral");
  if (spec.purpose == Purpose::long_context && model.learned_positions)
    refuse("the model has a table of positions, which ends with them",
           "--purpose finetune, or a model with rotary ones");
  if (spec.purpose == Purpose::many_devices && spec.devices <= cluster.devices_per_node)
    refuse("is for several nodes, and these devices are in one", "--purpose pretrain, or more --devices");
  if (cluster.num_devices > 0 && spec.devices > cluster.num_devices)
    throw ConfigError(fmt::format("--devices {}: the cluster has {}", spec.devices, cluster.num_devices));
  if (model.learned_positions && spec.seq_length > model.max_positions)
    throw ConfigError(fmt::format("--seq-length {}: the model has a table of {} positions; what works: --seq-length {}",
                                  spec.seq_length, model.max_positions, model.max_positions));
}

void choose_model_and_data(const NewRecipeSpec& spec, Draft& d) {
  Recipe& r = d.recipe;
  r.model.path = spec.model;
  d.why["model.path"] = "config.json, and its tokenizer, which goes along into checkpoints";
  r.model.init = is_pretrained(spec.purpose) ? InitChoice::pretrained : InitChoice::random;
  d.why["model.init"] = is_pretrained(spec.purpose) ? "it goes on from the folder's weights (safetensors)"
                                                    : "it begins with nothing but config.json";
  r.data.train = spec.data;
  d.why["data.train"] = "token files, text, JSON or Parquet, or the folder of a dataset (weft data run)";
  if (!tunes(spec.purpose)) return;
  r.data.packing = PackingKind::first_fit;
  d.why["data.packing"] = "examples stay whole: cut ones would teach beginnings without ends";
  r.data.attn_mask_type = AttentionMask::block_causal;
  d.why["data.attn_mask_type"] = "and see nothing of those beside them in a sample";
}

void choose_length(const NewRecipeSpec& spec, const ModelSpec& model, Draft& d) {
  int64_t& length = d.recipe.train.seq_length;
  const int64_t most = model.max_positions > 0 ? model.max_positions : kTunedLength;
  std::string why;
  if (spec.seq_length > 0) {
    length = spec.seq_length;
    why = "as asked for";
  } else if (spec.purpose == Purpose::long_context) {
    length = std::max(most, kLongLength);
    why = fmt::format("the {} that config.json names, or more", most);
  } else {
    length = std::min(most, tunes(spec.purpose) ? kTunedLength : kUsualLength);
    why = fmt::format("of the {} that config.json names: {}", most,
                      tunes(spec.purpose) ? "most examples are shorter, and memory goes with it"
                                          : "longer samples cost more attention for few documents that are as long");
  }
  if (length > most)
    why +=
        fmt::format("; beyond the {} that the model was made for: give config.json a larger rope_theta, or yarn", most);
  d.why["train.seq_length"] = why;
}

// A multiple of the odd part of the devices, so that dp may be all of them; else a power of two.
int64_t whole_batch(double sequences, int64_t devices) {
  while (devices % 2 == 0) devices /= 2;
  int64_t batch = devices;
  while (double(batch) < sequences) batch *= 2;
  return batch;
}

void choose_batch(const NewRecipeSpec& spec, double parameters, Draft& d) {
  const auto length = double(d.recipe.train.seq_length);
  const double published = parameters < 1e9    ? 1 << 19
                           : parameters < 5e9  ? 1 << 20
                           : parameters < 5e10 ? 1 << 21
                                               : 1 << 22;
  double sequences = spec.purpose == Purpose::lora ? 16 : 64;
  std::string why = "small batches tune as well, and make more steps of few examples";
  if (!tunes(spec.purpose)) {
    const double most = double(spec.devices) * double(kMostTokensOfDevice);
    sequences = std::min(published, most) / length;
    why =
        published <= most
            ? fmt::format("published runs of this size have about {:.2g} million tokens a step (Brown 2020, table 2.1)",
                          published / 1e6)
            : fmt::format("about {} tokens a device: few devices make more, smaller steps", kMostTokensOfDevice);
  }
  d.recipe.train.global_batch_size = whole_batch(std::max(sequences, 1.0), spec.devices);
  d.why["train.global_batch_size"] = fmt::format("sequences, {:.3g} thousand tokens a step: {}",
                                                 double(d.recipe.train.global_batch_size) * length / 1e3, why);
}

void choose_precision(const ClusterSpec& cluster, int64_t devices, Draft& d) {
  const PrecisionReason reason = precision_on(cluster, devices);
  d.recipe.train.precision = reason.choice;
  d.why["train.precision"] = reason.why;
}

// Ways to need less memory, in the order in which they are tried: the first that fits is taken.
struct Way {
  std::string key, why;
  std::function<void(Draft&)> take;
};
std::vector<Way> ways_of(Purpose purpose) {
  if (purpose == Purpose::lora) {
    const auto adapter = [](AdapterKind kind) {
      return [kind](Draft& d) {
        d.recipe.adapter.kind = kind;
        d.recipe.adapter.rank = 16;
        d.recipe.adapter.alpha = 32;
        d.why["adapter.rank"] = "enough for most tasks; twice as much if it learns too little";
        d.why["adapter.alpha"] = "twice the rank, as Hu 2021 and most after it";
      };
    };
    return {{"adapter.kind", "the base is frozen: neither gradients nor moments of it are kept",
             adapter(AdapterKind::lora)},
            {"adapter.kind", "the base is frozen and in 4 bits", adapter(AdapterKind::qlora)}};
  }
  std::vector<Way> ways{
      {"optimizer.name", "the usual one, with f32 moments",
       [](Draft& d) { d.recipe.optimizer.name = OptimizerKind::adamw; }},
      {"optimizer.name", "moments in 8 bits", [](Draft& d) { d.recipe.optimizer.name = OptimizerKind::adamw8bit; }}};
  if (purpose == Purpose::experts)
    ways.push_back(
        {"moe.capacity_factor", "room for twice a rank's even share of rows, what is beyond is dropped", [](Draft& d) {
           d.recipe.moe.capacity_factor = 2;
           d.recipe.moe.overflow = ExpertOverflow::drop;
           d.why["moe.overflow"] = "rows beyond the capacity pass the layer by";
         }});
  return ways;
}

struct FoundWay {
  FoundLayout layout;
  double room = 0;
  std::string nearest = {};  // where none fits
};

// Forecasts every layout: of measured machines, which have few ranks.
FoundWay among_all(const NewRecipeSpec& spec, const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                   LayoutPlanner& planner) {
  int64_t refused = 0;
  const RunPlan plan = prepare_run(with_choice(recipe, {.sequence_parallel = true}), config, 0);
  const std::vector<LayoutChoice> all = layouts_on(spec.devices, recipe, plan.model, cluster, refused);
  if (all.size() > kMostLayouts)
    throw ConfigError(
        fmt::format("{} layouts of {} measured ranks are too many to forecast one by one; what works: fewer "
                    "--devices, or a cluster that was not measured",
                    all.size(), spec.devices));
  const double shared =
      double(cluster.devices_per_node) / double(std::min<int64_t>(spec.devices, cluster.devices_per_node));
  FoundWay way{.layout = {}, .room = (cluster.device.memory_bytes - usual_reserve(cluster)) * shared};
  std::optional<FoundLayout> best, least;
  for (const LayoutChoice& choice : all) {
    const auto one = planner.plan(choice);
    if (!one) continue;
    if (!least || one->memory_bytes < least->memory_bytes) least = one;
    if (double(one->memory_bytes) <= way.room && (!best || one->step.step_s < best->step.step_s)) best = one;
  }
  if (best) {
    way.layout = *best;
    return way;
  }
  way.nearest = least ? fmt::format("{} needs {:.1f} of {:.1f} GiB", to_string(least->layout),
                                    double(least->memory_bytes) / kGiBOfDevice, way.room / kGiBOfDevice)
                      : "no layout can run";
  return way;
}

FoundWay find_layout(const NewRecipeSpec& spec, const Recipe& recipe, const HfConfig& config,
                     const ClusterSpec& cluster, const Profiles& profiles) {
  LayoutPlanner planner(recipe, config, cluster, profiles);
  if (!cluster.measured.empty()) return among_all(spec, recipe, config, cluster, planner);
  const SearchResult result = search_layouts(
      recipe, config, cluster, profiles,
      {.device_counts = {spec.devices}, .most = 1, .reserve_bytes = usual_reserve(cluster), .threads = spec.threads});
  if (result.best.empty()) return {.layout = {}, .room = result.room_bytes, .nearest = result.nearest};
  return {.layout = result.best[0], .room = result.room_bytes};
}

void choose_layout(const NewRecipeSpec& spec, const FoundWay& way, LayoutPlanner& planner, const ClusterSpec& cluster,
                   Draft& d) {
  Recipe& r = d.recipe;
  r = with_choice(r, way.layout.layout);
  if (r.parallel.tp == 1) r.parallel.sequence_parallel = true;  // which cuts nothing then
  std::map<std::string, std::vector<std::string>> reasons;
  for (const WorseNeighbour& n : worse_neighbours(way.layout, planner, cluster, way.room))
    reasons[n.key].push_back(n.text);
  const auto say = [&](const std::string& key, const char* of, const std::string& otherwise) {
    std::string text;
    for (size_t i = 0; i < std::min(reasons[of].size(), kReasons); ++i)
      text += (text.empty() ? "" : "; ") + reasons[of][i];
    d.why[key] = text.empty() ? otherwise : text;
  };
  const auto& p = r.parallel;
  say("train.micro_batch_size", "micro_batch_size",
      "sequences at once on a rank: neither twice nor half as many are slower or too large");
  d.why["parallel.dp"] =
      fmt::format("what the other axes leave of {} device{}", spec.devices, spec.devices > 1 ? "s" : "");
  const std::string alone = "no neighbour is slower or too large";
  say("parallel.tp", "tp", alone);
  say("parallel.pp", "pp", alone);
  say("parallel.cp", "cp", alone);
  if (p.ep > 1 || d.why.contains("moe.aux_loss_coef")) say("parallel.ep", "ep", alone);
  say("parallel.zero_stage", "zero_stage", p.dp * p.cp > 1 ? alone : "there are no other ranks to share state with");
  say("parallel.recompute", "recompute", alone);
  if (p.zero_shard_size > 0) d.why["parallel.zero_shard_size"] = "shards stay where links are fast";
  if (p.tp > 1)
    d.why["parallel.sequence_parallel"] = p.sequence_parallel ? "norms and dropout are cut too, at no cost"
                                                              : "tokens of a micro-batch cannot be cut by tp";
  if (p.pp > 1) say("parallel.pipeline_schedule", "pipeline_schedule", "the fastest that was found");
  if (p.virtual_pipeline_parallel_size > 0)
    d.why["parallel.virtual_pipeline_parallel_size"] =
        "chunks of a rank: more make the bubble shorter, and messages more";
  if (p.cp > 1) d.why["parallel.cp_comm_type"] = "the fastest that was found";
  if (p.order != Recipe().parallel.order)
    d.why["parallel.order"] = "ranks so numbered share fast links where they send most";
  if (p.cp_a2a_size > 0) d.why["parallel.cp_a2a_size"] = "ranks that exchange heads, within a domain";
}

void choose_optimizer(const NewRecipeSpec& spec, double parameters, Draft& d) {
  Recipe& r = d.recipe;
  const double tokens = double(r.train.global_batch_size) * double(r.train.seq_length);
  if (tunes(spec.purpose)) {
    r.train.train_iters = 0;
    r.train.epochs = 3;
    d.why["train.epochs"] = "times through the data; held-out loss says whether two were enough (data.valid)";
    r.optimizer.lr_warmup_iters = 10;
  } else {
    const bool goes_on = spec.purpose == Purpose::long_context;
    const double iters =
        std::ceil(goes_on ? kTokensOfContext / tokens : std::max(100.0, kTokensOfParameter * parameters / tokens));
    r.train.train_iters = int64_t(std::min(iters, double(kMostCount)));
    d.why["train.train_iters"] =
        goes_on ? "a billion tokens: half of one to five teach a model to use a longer context (Fu 2024)"
                : fmt::format(
                      "{:g} tokens a parameter (Hoffmann 2022): the least loss for the arithmetic; more make a "
                      "better model of this size",
                      kTokensOfParameter);
    r.optimizer.lr_warmup_iters = std::min<int64_t>(2000, r.train.train_iters / 50 + 1);
  }
  const bool lora = spec.purpose == Purpose::lora;
  r.optimizer.lr = lora                          ? 2e-4
                   : is_pretrained(spec.purpose) ? 1e-5
                   : parameters < 5e8            ? 6e-4
                   : parameters < 3e10           ? 3e-4
                                                 : 1.5e-4;
  d.why["optimizer.lr"] = lora                          ? "adapters take ten times what all weights do, and more"
                          : is_pretrained(spec.purpose) ? "low: the weights are good already"
                                                        : "as published runs of this size (Brown 2020, Touvron 2023)";
  r.optimizer.min_lr = std::round(r.optimizer.lr * 1e11) / 1e12;  // whole digits
  d.why["optimizer.min_lr"] = "a tenth, at the end of a cosine";
  d.why["optimizer.lr_warmup_iters"] = "moments settle first";
}

void choose_run(const NewRecipeSpec& spec, const ClusterSpec& cluster, const RunForecast& f, Draft& d) {
  Recipe& r = d.recipe;
  const bool known = cluster.failures_per_device_hour > 0;
  const double each = known ? best_save_interval(f.failures()) : kSaveEach_s;
  int64_t steps = std::max<int64_t>(1, int64_t(each / f.step.step_s));
  if (r.train.train_iters > 0) steps = std::min(steps, r.train.train_iters);
  r.checkpoint.save_interval = steps;
  d.why["checkpoint.save_interval"] =
      fmt::format("each {:.3g} minutes; {}; a save stops the run for {:.3g} s", double(steps) * f.step.step_s / 60,
                  known ? fmt::format("of a failure each {:.3g} hours this loses least (Daly 2006)",
                                      f.failures().mean_s_between / 3600)
                        : "how often devices fail is not known ([failures] of the cluster's file)",
                  f.save_s());
  r.run.dir = fmt::format("runs/{}", name_of(spec.purpose));
  d.why["run.dir"] = "one folder a run; the same command goes on where it stopped";
  const bool several = spec.devices > cluster.devices_per_node;
  if (!cluster.measured.empty()) {
    r.run.backend = BackendKind::cpu;
    d.why["run.backend"] = "as it was measured";
  } else {
    r.run.backend = BackendKind::automatic;
    d.why["run.backend"] = "GPUs where they are";
  }
  const MeasuredRanks* measured = measured_of(cluster, spec.devices);
  if (several || (measured != nullptr && measured->processes)) {
    r.run.ranks = RanksKind::mpi;
    d.why["run.ranks"] =
        several ? fmt::format("the devices are in nodes of {}: start it with mpirun", cluster.devices_per_node)
                : "as it was measured";
  }
}

std::string comment_of(const std::string& text) {
  std::string out = "# ";
  size_t column = 2;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (column > 2 && column + (end - at) > kColumns) {
      out += "\n# ";
      column = 2;
    }
    if (column > 2) out += ' ', ++column;
    out += text.substr(at, end - at);
    column += end - at;
    at = end + 1;
  }
  return out + "\n";
}

std::string toml_of(const Draft& d) {
  Recipe copy = d.recipe;
  std::string text = d.summary, section;
  for (const RecipeKey& key : recipe_keys(copy)) {
    const auto why = d.why.find(key.name);
    if (why == d.why.end()) continue;
    if (key.section() != section) text += fmt::format("\n[{}]\n", section = key.section());
    text += comment_of(why->second) + fmt::format("{} = {}\n", key.last(), value_of(key));
  }
  return text;
}

// Whether fewer devices would do.
std::string size_text(const FoundWay& way, LayoutPlanner& planner) {
  const RightSize right = right_size(way.layout, planner, way.room);
  std::string text = fmt::format("Unused: {}.", to_string(right, way.layout, way.room));
  if (right.enough) text += fmt::format(" So ask for --devices {}.", right.enough->layout.num_devices());
  return text;
}

std::string summary_of(const NewRecipeSpec& spec, double parameters, const RunForecast& f, const std::string& unused) {
  std::string text = comment_of(fmt::format(
      "{} of {}, {} parameters, on {} {}, by `weft new`. Forecast: {:.4g} s a step, {:.0f} tokens/s, MFU {:.1f} %, "
      "{:.1f} GiB of a device's {:.1f}. {}",
      name_of(spec.purpose), spec.model, format_count(parameters), spec.devices, f.cluster.device.name, f.step.step_s,
      f.tokens_per_s(), f.mfu() * 100, double(f.memory_bytes()) / kGiBOfDevice,
      f.cluster.device.memory_bytes / kGiBOfDevice, unused));
  return text +
         comment_of(
             "Beside each key stands why; where it is of the layout, what the forecast loses with another value.");
}

}  // namespace

NewRecipe new_recipe(const NewRecipeSpec& spec, const HfConfig& config, const ClusterSpec& cluster,
                     const Profiles& profiles) {
  const double parameters = parameters_of(config.spec);
  refuse_unfit(spec, config.spec, cluster);
  Draft d;
  choose_model_and_data(spec, d);
  choose_length(spec, config.spec, d);
  choose_batch(spec, parameters, d);
  choose_precision(cluster, spec.devices, d);
  if (spec.purpose == Purpose::experts && !config.spec.experts.correction) {
    d.recipe.moe.aux_loss_coef = config.spec.experts.aux_loss_coef > 0 ? config.spec.experts.aux_loss_coef : 0.01;
    d.why["moe.aux_loss_coef"] = "without it few experts would see most tokens";
  }
  if (const MeasuredRanks* measured = measured_of(cluster, spec.devices); measured != nullptr && measured->processes)
    d.recipe.run.ranks = RanksKind::mpi;  // as forecasts ask
  FoundWay found;
  std::string beside, nearest;
  for (const Way& way : ways_of(spec.purpose)) {
    way.take(d);
    found = find_layout(spec, d.recipe, config, cluster, profiles);
    d.why[way.key] = way.why + beside;
    if (found.nearest.empty()) break;
    nearest = found.nearest;
    beside = fmt::format("; without it: {}", nearest);
  }
  if (!found.nearest.empty())
    throw ConfigError(fmt::format("nothing of --purpose {} fits on {} {}: {}; the nearest that works: more --devices{}",
                                  name_of(spec.purpose), spec.devices, cluster.device.name, nearest,
                                  spec.purpose == Purpose::finetune ? ", or --purpose lora"
                                  : is_pretrained(spec.purpose)     ? ", or a smaller --seq-length"
                                                                    : ""));
  LayoutPlanner planner(d.recipe, config, cluster, profiles);
  choose_layout(spec, found, planner, cluster, d);
  choose_optimizer(spec, parameters, d);
  RunForecast forecast = forecast_run(d.recipe, config, cluster, profiles);
  choose_run(spec, cluster, forecast, d);
  d.summary = summary_of(spec, parameters, forecast, size_text(found, planner));
  NewRecipe made{.recipe = d.recipe, .toml = toml_of(d), .forecast = std::move(forecast)};
  const Recipe read = parse_recipe(made.toml, "weft new", {});
  check_supported(read);
  WEFT_CHECK(read == made.recipe, "the recipe that is written is another one than was planned");
  return made;
}

}  // namespace weft
