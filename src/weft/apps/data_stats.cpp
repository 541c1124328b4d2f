// weft data stats.
#include <algorithm>
#include <iostream>
#include <set>

#include "weft/apps/commands.h"
#include "weft/apps/stage_text.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/pipeline/dataset.h"

namespace weft {
namespace {

// The reason "gopher_quality.min_words" also belongs to the rule "gopher_quality".
bool is_of(const std::string& reason, const std::string& rule) {
  return rule.empty() || reason == rule || reason.starts_with(rule + ".");
}

std::vector<Sample> samples_of(const nlohmann::json& stage, const std::string& rule, const std::string& where) {
  std::vector<Sample> samples = samples_of_json(stage, where);
  std::erase_if(samples, [&](const Sample& s) { return !is_of(s.reason, rule); });
  return samples;
}

// A rule that dropped nothing may have been misspelt.
void refuse_unknown_rule(const Dataset& dataset, const std::string& rule, const std::string& where) {
  std::set<std::string> reasons;
  for (const auto& stage : dataset.manifest.at("stages"))
    for (const auto& [reason, n] : counts_of_json(stage.at("counts"), where).dropped) reasons.insert(reason);
  if (std::any_of(reasons.begin(), reasons.end(), [&](const std::string& r) { return is_of(r, rule); })) return;
  if (reasons.empty()) reasons.insert("none");
  throw ConfigError(
      fmt::format("--samples: nothing was dropped as {}; there are: {}", in_quotes(rule), fmt::join(reasons, ", ")));
}

void say_sample(const Sample& s) {
  const std::string place = s.file.empty() ? "" : fmt::format(", {}: row {}", s.file, s.row);
  // The id of a broken row is its place.
  const std::string name = s.file.empty() || !s.id.starts_with(s.file) ? s.id + place : s.id;
  std::cout << fmt::format("  {}: {}\n    {}\n", s.reason, name, s.detail);
  if (!s.text.empty()) std::cout << "    " << nlohmann::json(s.text).dump() << "\n";
}

// Without the lists of every shard and file.
nlohmann::json stage_json(const nlohmann::json& stage, const StatsOptions& o) {
  nlohmann::json json = stage;
  for (const char* key : {"shards", "bytes", "others"}) json.erase(key);
  auto& samples = json["samples"];
  nlohmann::json wanted = nlohmann::json::array();
  for (const auto& sample : samples)
    if (is_of(sample.at("reason").get<std::string>(), o.rule)) wanted.push_back(sample);
  samples = wanted;
  return json;
}

void say_json(const Dataset& dataset, const StatsOptions& o) {
  nlohmann::json json = {
      {"version", dataset.version}, {"inputs", dataset.manifest.at("inputs")}, {"stages", nlohmann::json::array()}};
  for (const auto& stage : dataset.manifest.at("stages")) json["stages"].push_back(stage_json(stage, o));
  std::cout << json.dump(1) << "\n";
}

void say_token_files(const nlohmann::json& stage) {
  for (const auto& file : stage.at("files"))
    std::cout << fmt::format("  {}: {} documents, {} tokens{}{}\n", file.at("prefix").get<std::string>(),
                             file.at("documents").get<int64_t>(), file.at("tokens").get<int64_t>(),
                             file.contains("counted") ? ", of which count " + file.at("counted").dump() : "",
                             file.contains("weight") ? ", weight " + file.at("weight").dump() : "");
}

}  // namespace

int run_data_stats(const StatsOptions& o) {
  const std::filesystem::path folder = o.folder;
  const Dataset dataset = open_dataset(folder);
  const std::string where = (folder / "manifest.json").string();
  for (const auto& stage : dataset.manifest.at("stages")) samples_of_json(stage, where);  // as they should be
  if (!o.rule.empty()) refuse_unknown_rule(dataset, o.rule, where);
  if (o.json) {
    say_json(dataset, o);
    return kExitOk;
  }
  std::cout << "version " << dataset.version << "\n";
  for (const auto& input : dataset.manifest.at("inputs"))
    std::cout << fmt::format("input {}: {}{}\n", input.at("file").get<std::string>(),
                             megabytes(input.at("bytes").get<double>()),
                             failure_of(input).empty() ? "" : ", " + failure_of(input));
  for (const auto& stage : dataset.manifest.at("stages")) {
    std::cout << stage_text(stage, folder);
    if (o.samples)
      for (const Sample& sample : samples_of(stage, o.rule, where)) say_sample(sample);
    if (stage.contains("files")) say_token_files(stage);
  }
  return kExitOk;
}

}  // namespace weft
