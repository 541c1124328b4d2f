#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <set>

#include "weft/apps/commands.h"
#include "weft/apps/new_folder.h"
#include "weft/apps/release.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/models/hf_weights.h"
#include "weft/models/merge_adapter.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/checkpoint_companions.h"
#include "weft/train/text_generator.h"
#include "weft/train/trained_context.h"

namespace weft {

namespace {

namespace fs = std::filesystem;

std::vector<AdapterToMerge> adapters_of(const MergeOptions& o) {
  if (o.weights.size() != o.adapters.size() && !(o.weights.empty() && o.adapters.size() == 1))
    throw ConfigError(fmt::format("--weights: {} adapters need {} weights, not {}: as {}", o.adapters.size(),
                                  o.adapters.size(), o.weights.size(),
                                  fmt::join(std::vector(o.adapters.size(), 1.0 / double(o.adapters.size())), ",")));
  std::vector<AdapterToMerge> adapters;
  for (size_t i = 0; i < o.adapters.size(); ++i) {
    const fs::path folder = model_folder_of(o.adapters[i], [](const std::string& line) { std::cerr << line << "\n"; });
    adapters.push_back({folder, read_hf_config(folder), o.weights.empty() ? 1 : o.weights[i]});
    if (!adapters.back().config.adapter)
      throw ConfigError(fmt::format("{}: has no adapter_config.json: there is nothing to merge", folder.string()));
  }
  require_mergeable(adapters);
  return adapters;
}

// Of them all, as many positions as the one that was trained at most tokens says.
nlohmann::json config_of_all(const std::vector<AdapterToMerge>& adapters, DType dtype) {
  constexpr const char* kPositions = "max_position_embeddings";
  nlohmann::json config = config_of_merged(adapters[0].folder, adapters[0].config, dtype);
  for (const AdapterToMerge& a : adapters) {
    const nlohmann::json other = config_of_merged(a.folder, a.config, dtype);
    if (other.contains(kPositions) && other[kPositions] > config[kPositions]) config[kPositions] = other[kPositions];
  }
  return config;
}

std::string words_of(const std::vector<AdapterToMerge>& adapters) {
  if (adapters.size() == 1 && adapters[0].weight == 1) return "the adapter " + adapters[0].folder.string();
  std::string words;
  for (const AdapterToMerge& a : adapters)
    words += fmt::format("{}{} x {}", words.empty() ? "" : " + ", a.weight, a.folder.string());
  return words;
}

size_t num_changed(const std::vector<AdapterToMerge>& adapters) {
  std::set<std::string> modules;
  for (const AdapterToMerge& a : adapters)
    for (const AdapterSpec::Target& target : a.config.spec.adapter->targets) modules.insert(target.module);
  return modules.size();
}

int merge(const MergeOptions& o) {
  const std::vector<AdapterToMerge> adapters = adapters_of(o);
  const HfConfig& config = adapters[0].config;
  const fs::path out = require_new_folder("--out", o.out);
  const fs::path base = base_of_adapter(adapters[0].folder, *config.adapter);
  const DType dtype = merged_dtype(base);
  ModelSpec plain = config.spec;
  plain.adapter.reset();
  const SafetensorsLayout layout = hf_layout(plain, dtype);
  make_parent("--out", out);
  DurableFolder folder(out);
  create_files(folder.building(), layout);
  write_merged(adapters, layout, dtype, folder.building());
  write_file_durably(folder.building() / "config.json", config_of_all(adapters, dtype).dump(2) + "\n");
  for (const AdapterToMerge& a : adapters)
    if (!find_tokenizer(a.folder).empty()) copy_companions(a.folder, {}, folder.building());  // what is not there yet
  copy_companions(base, {}, folder.building());
  folder.commit();
  std::cout << fmt::format("{}: {} with {}, {} of its matrices changed by {}{}\n", out.string(), base.string(),
                           words_of(adapters), num_changed(adapters), adapters.size() > 1 ? "them" : "it",
                           config.spec.adapter->base_codes == WeightCodes::none
                               ? ""
                               : "; those of blocks are what the codes beside it stood for");
  return kExitOk;
}

}  // namespace

int run_merge(const MergeOptions& o) {
  return released({.command = "merge", .models = o.adapters, .policies = o.policies, .results = "", .to = o.out},
                  [&] { return merge(o); });
}

}  // namespace weft
