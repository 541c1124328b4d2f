#include "weft/recipe/islands.h"

#include "weft/base/error.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {

std::vector<RecipeKey> island_keys(Islands& i) {
  constexpr bool kFree = true;
  constexpr double kMostIslands = 1024, kMostFragments = 1 << 16;
  return {
      {"islands.count",
       &i.count,
       {.min = 0, .max = kMostIslands},
       "jobs that train one model together and exchange weights now and then (docs/islands.md); 0: this job is none of "
       "such"},
      {"islands.number",
       &i.number,
       {.min = 0, .max = kMostIslands - 1},
       "which of them this one is, from 0; it trains on every count-th batch"},
      {"islands.address",
       &i.address,
       {},
       "host:port where the hub listens, `weft islands RECIPE`, as \"10.0.0.1:7171\"",
       kFree},
      {"islands.secret_file",
       &i.secret_file,
       {},
       "file with the secret by which hub and islands know each other, readable for its owner alone; empty: the "
       "environment's WEFT_ISLANDS_SECRET",
       kFree},
      {"islands.sync_every",
       &i.sync_every,
       {.min = 1, .max = kMostCount},
       "steps between two exchanges of a weight: train.train_iters is a multiple"},
      {"islands.fragments",
       &i.fragments,
       {.min = 1, .max = kMostFragments},
       "parts of the weights, by layers, that are exchanged in turn, one each sync_every / fragments steps: so much "
       "less at once (Douillard et al. 2025, Streaming DiLoCo)"},
      {"islands.outer_lr",
       &i.outer_lr,
       {.min = 0, .above_min = true},
       "learning rate of the outer step, whose gradient is what the islands have moved on the mean (Douillard et al. "
       "2023, DiLoCo); 1 with outer_momentum = 0: the mean of the weights (Stich 2019, local SGD)"},
      {"islands.outer_momentum",
       &i.outer_momentum,
       {.min = 0, .max = 1, .below_max = true},
       "Nesterov momentum of the outer step"},
      {"islands.wire_precision",
       &i.wire_precision,
       {.choices = {"f32", "bf16"}},
       "what is sent: weights in f32, or in half as many bytes how far they have moved, in bf16"},
      {"islands.timeout_seconds",
       &i.timeout_seconds,
       {.min = 0, .above_min = true},
       "how long the hub, once it has one island's weights, waits for another that is silent before it goes on without "
       "it; and an island for a hub that does not answer, before it trains on alone",
       kFree},
      {"islands.max_staleness",
       &i.max_staleness,
       {.min = 0, .max = kMostCount},
       "exchanges that an island may have missed, and what it has learnt meanwhile still counts in the next; beyond "
       "that it takes the outer weights in its place",
       kFree},
  };
}

std::vector<Conflict> island_conflicts(const Islands& i, const Recipe& r) {
  std::vector<Conflict> all;
  if (!i.are_joined()) return all;
  if (i.number >= i.count)
    all.push_back({.key = "islands.number",
                   .others = {"islands.count"},
                   .expected = fmt::format("below islands.count = {}: they are numbered from 0", i.count),
                   .nearest = fmt::format("islands.number = {}", i.count - 1)});
  if (i.address.empty())
    all.push_back({.key = "islands.address",
                   .others = {"islands.count"},
                   .expected = "host:port of the hub, as \"10.0.0.1:7171\", with islands.count above 0"});
  if (i.sync_every % i.fragments != 0) {
    int64_t nearest = i.fragments;
    while (i.sync_every % nearest != 0) --nearest;
    all.push_back({.key = "islands.fragments",
                   .others = {"islands.sync_every"},
                   .expected = fmt::format("a divisor of islands.sync_every = {}", i.sync_every),
                   .nearest = fmt::format("islands.fragments = {}", nearest)});
  }
  // Ranks that wait for the first one, which waits for the hub, are not to take it for lost.
  if (const double most = 30 * double(r.run.distributed_timeout_minutes); i.timeout_seconds > most)
    all.push_back({.key = "islands.timeout_seconds",
                   .others = {"run.distributed_timeout_minutes"},
                   .expected = fmt::format("at most {}: half of run.distributed_timeout_minutes", most),
                   .nearest = fmt::format("islands.timeout_seconds = {}", most)});
  if (const int64_t steps = r.train.train_iters; steps % i.sync_every != 0)
    all.push_back({.key = "train.train_iters",
                   .others = {"islands.sync_every", "train.epochs"},
                   .expected = fmt::format("a multiple of islands.sync_every = {}: the last step ends with an exchange",
                                           i.sync_every),
                   .nearest = fmt::format("train.train_iters = {}", (steps / i.sync_every + 1) * i.sync_every)});
  return all;
}

std::string to_toml(const Islands& islands) {
  if (!islands.are_joined()) return "";
  Islands copy = islands;
  std::string text = "\n[islands]\n";
  for (const RecipeKey& key : island_keys(copy)) text += fmt::format("{} = {}\n", key.last(), value_of(key));
  return text;
}

std::vector<std::string> island_differences(const Islands& there, const Islands& here) {
  Islands a = there, b = here;
  const auto old_keys = island_keys(a), new_keys = island_keys(b);
  std::vector<std::string> all;
  for (size_t k = 0; k < old_keys.size(); ++k) {
    const std::string x = value_of(old_keys[k]), y = value_of(new_keys[k]);
    if (x != y && !old_keys[k].may_change) all.push_back(fmt::format("{}: {} there, {} here", old_keys[k].name, x, y));
  }
  return all;
}

std::string shared_settings(const Islands& islands, const Recipe& recipe) {
  Islands copy = islands;
  std::string text;
  for (const RecipeKey& key : island_keys(copy))
    if (!key.may_change && key.name != "islands.number") text += fmt::format("{} = {}\n", key.name, value_of(key));
  for (const auto& [name, value] : {std::pair("train.seed", recipe.train.seed),
                                    {"train.seq_length", recipe.train.seq_length},
                                    {"train.global_batch_size", recipe.train.global_batch_size},
                                    {"train.train_iters", recipe.train.train_iters}})
    text += fmt::format("{} = {}\n", name, value);
  return text;
}

void check_islands_supported(const Islands& i, const Recipe& r) {
  std::string text;
  const auto refuse = [&](bool refused, const std::string& setting, const char* why, const char* nearest) {
    if (refused)
      text += fmt::format("{}{} cannot run with [islands]: {}; the nearest that works: {}", text.empty() ? "" : "\n",
                          setting, why, nearest);
  };
  Islands none = i;
  none.count = 0;
  if (!i.are_joined()) {
    if (none != Islands())
      throw ConfigError("[islands] has no effect: islands.count is 0; the nearest that works: islands.count = 2");
    return;
  }
  refuse(r.run.backend == BackendKind::ref, "run.backend = \"ref\"", "weights are kept and sent in f32",
         "run.backend = \"cpu\"");
  refuse(r.train.objective != ObjectiveKind::cross_entropy, fmt::format("train.objective = \"{}\"", r.train.objective),
         "only the order of texts is shared out over islands yet", "train.objective = \"cross_entropy\"");
  refuse(has_phases(r), "[[phase]] or train.rampup_batch_size",
         "islands count the batches of one order together, and all of one size", "one phase, and no ramp");
  refuse(r.train.epochs > 0, fmt::format("train.epochs = {}", r.train.epochs),
         "an epoch is of all islands together, and each makes its own steps", "train.train_iters");
  refuse(r.train.on_spike != SpikeAction::none, fmt::format("train.on_spike = \"{}\"", r.train.on_spike),
         "a run that skips a batch or goes back would leave the order that it shares with the others",
         "train.on_spike = \"none\"");
  refuse(r.checkpoint.async_save, "checkpoint.async_save", "the copy in memory has no room for the outer weights",
         "checkpoint.async_save = false");
  refuse(r.checkpoint.local_interval > 0, fmt::format("checkpoint.local_interval = {}", r.checkpoint.local_interval),
         "a local copy has no room for the outer weights", "checkpoint.local_interval = 0");
  refuse(r.train.autotune, "train.autotune", "each island would wait for the others' trials", "train.autotune = false");
  refuse(r.train.rebalance, "train.rebalance", "a run that goes on with other shares would leave the others' order",
         "train.rebalance = false");
  refuse(r.moe.bias_update_rate > 0, fmt::format("moe.bias_update_rate = {}", r.moe.bias_update_rate),
         "corrections of routers are not exchanged, and each island's would go a way of its own",
         "moe.bias_update_rate = 0");
  if (!text.empty()) throw ConfigError(text);
}

}  // namespace weft
