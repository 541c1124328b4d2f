#include "weft/forecast/layer_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/plan/layout.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {
namespace {

constexpr std::array kDecide{"train.objective",
                             "train.seq_length",
                             "train.micro_batch_size",
                             "train.precision",
                             "train.numerics",
                             "parallel.dp",
                             "parallel.tp",
                             "parallel.pp",
                             "parallel.cp",
                             "parallel.ep",
                             "parallel.zero_stage",
                             "parallel.zero_shard_size",
                             "parallel.cp_comm_type",
                             "parallel.cp_a2a_size",
                             "parallel.order",
                             "parallel.sequence_parallel",
                             "parallel.pipeline_schedule",
                             "parallel.virtual_pipeline_parallel_size",
                             "parallel.recompute",
                             "adapter.kind",
                             "adapter.rank",
                             "adapter.targets",
                             "run.backend"};
constexpr const char* kMember = "weft_layers";
constexpr const char* kHowTo = "`weft bench step RECIPE --trace FILE` writes one";
constexpr size_t kMostTraceBytes = size_t{1} << 30;
constexpr int64_t kMostBlocks = 1 << 16;

std::string model_shape_text(const ModelSpec& m) {
  std::string text =
      fmt::format("{} blocks of width {}, {} heads of {} ({} of keys), inner width {}, {} tokens", m.num_layers,
                  m.width, m.num_heads, m.head_dim, m.num_kv_heads, m.ffn_width, m.vocab_size);
  if (m.has_experts())
    text += fmt::format(", {} experts of width {}, {} of a token", m.experts.count, m.experts.width, m.experts.chosen);
  if (m.latent) text += fmt::format(", latents of {} and {}", m.latent->q_rank, m.latent->kv_rank);
  if (m.has_mtp()) text += ", multi-token prediction";
  return text;
}

nlohmann::json json_of(const LayerSeconds& s) { return {s.forward, s.dgrad, s.wgrad}; }

LayerSeconds layer_seconds_in(const nlohmann::json& list, const std::string& where) {
  const auto is_seconds = [](const nlohmann::json& n) {
    return n.is_number() && std::isfinite(n.get<double>()) && n.get<double>() >= 0;
  };
  if (!list.is_array() || list.size() != 3 || !is_seconds(list[0]) || !is_seconds(list[1]) || !is_seconds(list[2]))
    throw FileError(fmt::format("{}: expected three times in seconds, got {}", where, shown(list)));
  return {list[0].get<double>(), list[1].get<double>(), list[2].get<double>()};
}

std::map<std::string, std::string> settings_in(const JsonFields& fields) {
  std::map<std::string, std::string> settings;
  const JsonFields all = fields.object("settings");
  for (const auto& [key, value] : all.json().items()) settings[key] = all.string(key);
  return settings;
}

BlockLayout cut_in(const JsonFields& fields, size_t num_blocks) {
  BlockLayout cut;
  for (const nlohmann::json& count : fields.list("cut", "a list of numbers of blocks")) {
    if (!count.is_number_integer() || count.get<int64_t>() < 0 || count.get<int64_t>() > kMostBlocks)
      fields.fail("cut", "a list of numbers of blocks");
    cut.push_back(count.get<int64_t>());
  }
  if (cut.empty() || std::accumulate(cut.begin(), cut.end(), int64_t{0}) != int64_t(num_blocks))
    fields.fail("cut", fmt::format("counts that add up to the {} blocks that there are times of", num_blocks));
  return cut;
}

}  // namespace

std::map<std::string, std::string> settings_of_trace(const Recipe& recipe, const ModelSpec& model) {
  Recipe copy = recipe;
  std::map<std::string, std::string> settings{{"model", model_shape_text(model)}};
  for (const RecipeKey& key : recipe_keys(copy))
    if (std::find(kDecide.begin(), kDecide.end(), key.name) != kDecide.end()) settings[key.name] = value_of(key);
  return settings;
}

nlohmann::json to_json(const LayerTrace& t) {
  nlohmann::json layers{{"machine", t.machine},
                        {"settings", t.settings},
                        {"cut", t.cut},
                        {"embedding", json_of(t.embedding)},
                        {"head", json_of(t.head)},
                        {"blocks", nlohmann::json::array()}};
  for (const LayerSeconds& s : t.blocks) layers["blocks"].push_back(json_of(s));
  return {{kMember, layers}};
}

LayerTrace layer_trace_of(const nlohmann::json& chrome_trace, const std::string& source) {
  if (!chrome_trace.is_object() || !chrome_trace.contains("otherData") || !chrome_trace["otherData"].is_object() ||
      !chrome_trace["otherData"].contains(kMember))
    throw FileError(fmt::format("{}: is no trace with the times of layers; {}", source, kHowTo));
  const JsonFields fields(chrome_trace["otherData"][kMember], source, fmt::format("otherData.{}.", kMember));
  LayerTrace trace{.machine = fields.string("machine"), .settings = settings_in(fields)};
  for (const nlohmann::json& times : fields.list("blocks", "a list of the times of blocks"))
    trace.blocks.push_back(layer_seconds_in(times, fields.where("blocks")));
  trace.cut = cut_in(fields, trace.blocks.size());
  for (const auto& [key, to] : {std::pair("embedding", &trace.embedding), std::pair("head", &trace.head)})
    *to = layer_seconds_in(fields.list(key, "three times in seconds"), fields.where(key));
  return trace;
}

LayerTrace read_layer_trace(const std::filesystem::path& file) {
  return layer_trace_of(read_json_file(file, {.max_bytes = kMostTraceBytes}), file.string());
}

void require_trace_of(const LayerTrace& trace, const Recipe& recipe, const ModelSpec& model) {
  if (recipe.parallel.pp == 1)
    throw ConfigError(
        "parallel.pp = 1: one stage has all blocks, and there is nothing to balance; what works: a recipe with "
        "parallel.pp of 2 or more");
  if (has_phases(recipe))
    throw ConfigError(
        "stages cannot be balanced by one step of a recipe whose steps differ ([[phase]], train.rampup_batch_size); "
        "what works: a recipe of the phase that takes longest, alone");
  if (recipe.parallel.recompute == RecomputeKind::budget)
    throw ConfigError(
        "stages cannot be balanced by a trace with parallel.recompute = \"budget\", which chooses anew in each cut "
        "what "
        "blocks compute again; the nearest that works: a trace and a recipe with parallel.recompute = \"selective\"");
  for (const auto& [key, here] : settings_of_trace(recipe, model)) {
    const auto there = trace.settings.find(key);
    if (there == trace.settings.end() || there->second != here)
      throw ConfigError(fmt::format("the trace is of another run: {} is {} there, and {} here; {}", key,
                                    there == trace.settings.end() ? "nothing" : there->second, here, kHowTo));
  }
  const int virtual_stages = pipeline_of(recipe).num_virtual_stages();
  if (int64_t(trace.blocks.size()) != model.num_layers || trace.cut.size() != size_t(virtual_stages))
    throw ConfigError(fmt::format("the trace is of {} blocks in {} virtual stages, the recipe of {} in {}; {}",
                                  trace.blocks.size(), trace.cut.size(), model.num_layers, virtual_stages, kHowTo));
}

}  // namespace weft
