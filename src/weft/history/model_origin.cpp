#include "weft/history/model_origin.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/plain_file.h"
#include "weft/models/peft.h"
#include "weft/pipeline/dataset.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostCardBytes = 1 << 20;

fs::path absolute_folder(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(path, error);
  return error ? fs::absolute(path).lexically_normal() : real;
}

// What the sources of a dataset say; empty where one of them says nothing, or the dataset is not there any more.
std::string licence_of_dataset(const fs::path& folder, const std::string& version) {
  if (!is_there(folder / "manifest.json")) return "";
  const Dataset dataset = open_dataset(folder);
  if (dataset.version != version) return "";
  std::set<std::string> all;
  for (const auto& stage : dataset.manifest.at("stages")) {
    const JsonFields parameters = JsonFields(stage, folder.string()).object("parameters");
    if (!parameters.has("source")) continue;
    for (const auto& source : parameters.list("source", "a list of sources")) {
      const std::string toml = JsonFields(source, folder.string()).string("licence", "\"\"");
      const auto text = nlohmann::json::parse(toml, nullptr, /*allow_exceptions=*/false);
      if (!text.is_string() || text.get<std::string>().empty()) return "";
      all.insert(lower_ascii(text.get<std::string>()));
    }
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

class Collector {
 public:
  ModelOrigin collect(const fs::path& model) {
    ModelOrigin origin = of_folder(model);
    seen_.insert(origin.folder.string());
    add_parts(origin, origin.parts);
    return origin;
  }

 private:
  static ModelOrigin of_folder(const fs::path& model) {
    ModelOrigin origin{.folder = absolute_folder(model)};
    if (!is_there(origin.folder / "weft" / "state.json")) return origin;
    origin.progress = read_progress(origin.folder);
    if (const fs::path recipe = origin.folder / "weft" / "recipe.toml"; is_there(recipe))
      origin.recipe = parse_recipe_file(recipe.string(), {});
    const fs::path checkpoints = origin.folder.parent_path();
    if (checkpoints.filename() == "checkpoints" && is_run_folder(checkpoints.parent_path()))
      origin.run = read_run_facts(checkpoints.parent_path());
    return origin;
  }

  void add_parts(const ModelOrigin& origin, std::vector<LicensedPart>& parts) {
    if (!origin.progress) {
      parts.push_back({.what = "model " + origin.folder.filename().string(),
                       .names = {origin.folder.filename().string()},
                       .licence = licence_in_card(origin.folder)});
      if (is_adapter_folder(origin.folder))
        add_model(base_of_adapter(origin.folder, read_peft_config(origin.folder)), parts);
      return;
    }
    for (const RunSource& source : origin.progress->sources) parts.push_back(part_of(source, origin));
    for (const fs::path& model : models_of(origin)) add_model(model, parts);
  }

  void add_model(const fs::path& model, std::vector<LicensedPart>& parts) {
    if (seen_.insert(absolute_folder(model).string()).second) add_parts(of_folder(model), parts);
  }

  static LicensedPart part_of(const RunSource& source, const ModelOrigin& origin) {
    LicensedPart part{.what = "data " + source.path, .names = {source.contents}, .licence = ""};
    if (source.version.empty()) return part;
    part.names.push_back(source.version);
    std::string folder = source.dataset;  // as it was seen from where the run was started
    if (origin.run)
      for (const RunSource& known : origin.run->data)
        if (known.version == source.version) folder = known.dataset;
    part.licence = licence_of_dataset(folder, source.version);
    return part;
  }

  // Whose weights this one began with, or learnt from.
  static std::vector<fs::path> models_of(const ModelOrigin& origin) {
    const bool is_made_of_path = origin.recipe && (origin.recipe->model.init == InitChoice::pretrained ||
                                                   origin.recipe->adapter.kind != AdapterKind::none);
    std::vector<fs::path> models;
    if (!origin.run) {
      if (is_made_of_path) models.emplace_back(origin.recipe->model.path);
      if (!origin.recipe) return models;
      const Recipe& r = *origin.recipe;
      for (const std::string& path :
           {r.adapter.path, r.objective.teacher, r.objective.teacher_logits, r.objective.reference})
        if (!path.empty()) models.emplace_back(path);
      return models;
    }
    for (const RunInput& input : origin.run->inputs) {
      const std::string key = input.role.substr(input.role.rfind(' ') + 1);  // of phases too; npos + 1 is 0
      const bool is_one = (key == "model.path" && is_made_of_path) || key == "--from" || key == "adapter.path" ||
                          key == "objective.teacher" || key == "objective.teacher_logits" ||
                          key == "objective.reference";
      if (is_one && !input.path.starts_with(origin.run->path + "/")) models.emplace_back(input.path);
    }
    return models;
  }

  std::set<std::string> seen_;
};

}  // namespace

ModelOrigin origin_of(const fs::path& model) { return Collector().collect(model); }

std::string licence_in_card(const fs::path& folder) {
  const fs::path file = folder / "README.md";
  if (!is_there(file) || !is_plain_file(file, kMostCardBytes)) return "";
  std::ifstream in(file, std::ios::binary);
  std::string line;
  if (!std::getline(in, line) || !line.starts_with("---")) return "";
  constexpr std::string_view kKey = "license:";
  while (std::getline(in, line) && !line.starts_with("---")) {
    if (!line.starts_with(kKey)) continue;
    std::string licence = lower_ascii(line.substr(kKey.size()));
    std::erase_if(licence, [](char c) { return c == ' ' || c == '"' || c == '\'' || c == '\r'; });
    return licence == "unknown" ? "" : licence;
  }
  return "";
}

}  // namespace weft
