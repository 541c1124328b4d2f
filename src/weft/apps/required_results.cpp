#include "weft/apps/required_results.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/models/fingerprint.h"
#include "weft/models/peft.h"
#include "weft/recipe/requirement.h"
#include "weft/records/metrics_log.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{4} << 30;

TaskResults results_in_file(const std::string& file, const fs::path& model) {
  const nlohmann::json json = read_json_file(file, {.max_bytes = kMostBytes});
  const JsonFields all(json, file);
  if (!has_fingerprint(model, all.string("weights", "")))
    throw ConfigError(
        fmt::format("--results {0}: is not of the weights of {1}: `weft eval {1} --tasks ... --output {0}` makes it",
                    file, model.string()));
  TaskResults results;
  for (const char* part : {"results", "groups"})
    for (const nlohmann::json& set : all.list(part, "a list of tasks")) {
      const JsonFields fields(set, file);
      const std::string task = fields.string("task");
      const JsonFields metrics = fields.object("metrics");
      for (const auto& [metric, value] : metrics.json().items())
        results[task + "." + metric] = JsonFields(value, file).number("value", {.min = -1e300});
    }
  return results;
}

fs::path metrics_of_run(const fs::path& model) {
  const fs::path checkpoints = fs::absolute(model).lexically_normal().parent_path(),
                 metrics = checkpoints.parent_path() / "metrics.jsonl";
  return checkpoints.filename() == "checkpoints" && fs::exists(metrics) ? metrics : fs::path();
}

TaskResults results_at_step(const fs::path& metrics, int64_t step) {
  TaskResults results;
  for (const TasksRecord& record : read_metrics(metrics).tasks)
    if (record.step == step)
      for (const auto& [name, value] : record.results) results[name] = value;  // the last counts
  return results;
}

TaskResults results_of_run(const fs::path& model) {
  const fs::path metrics = metrics_of_run(model);
  if (metrics.empty())
    throw ConfigError(
        fmt::format("--require: {} is no checkpoint in the folder of a run; name the file that has its results, of "
                    "`weft eval ... --output`, by --results",
                    model.string()));
  const int64_t step = read_progress(model).step;
  const TaskResults results = results_at_step(metrics, step);
  if (results.empty())
    throw ConfigError(
        fmt::format("--require: the run has scored no tasks in step {} of the checkpoint (eval.tasks); "
                    "`weft eval {} --tasks ... --output FILE` does, and --results FILE names it",
                    step, model.string()));
  return results;
}

}  // namespace

TaskResults recorded_results(const fs::path& model, const std::string& file) {
  if (!file.empty()) return results_in_file(file, model);
  const fs::path metrics = metrics_of_run(model);
  return metrics.empty() ? TaskResults() : results_at_step(metrics, read_progress(model).step);
}

void require_results(const ExportOptions& o) {
  if (o.require.empty()) return;
  std::vector<Requirement> all;
  for (const std::string& text : o.require) {
    const auto one = parse_requirement(text);
    if (!one) throw ConfigError(fmt::format("--require {}: expected {}", in_quotes(text), kRequirementForm));
    all.push_back(*one);
  }
  const fs::path model = model_folder_of(o.model, [](const std::string&) {});
  const TaskResults results = o.results.empty() ? results_of_run(model) : results_in_file(o.results, model);
  for (const Requirement& needed : all) {
    const auto at = results.find(needed.result);
    if (at == results.end()) {
      std::string known;
      for (const auto& [name, value] : results)
        if (!name.ends_with("_stderr")) known += (known.empty() ? "" : ", ") + name;
      throw ConfigError(fmt::format("--require: there is no result {}; there are {}", needed.result, known));
    }
    if (!needed.is_met(at->second))
      throw Error(fmt::format("{}: {} is required, and it is {:.4f}; nothing is written", model.string(),
                              needed.to_string(), at->second));
    std::cerr << fmt::format("{}: it is {:.4f}\n", needed.to_string(), at->second);
  }
}

}  // namespace weft
