#include "weft/apps/sweep_draft.h"

#include <fmt/format.h>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/nearest.h"

namespace weft {
namespace {

void set_in_config(nlohmann::json& config, const std::string& word) {
  const size_t sign = word.find('=');
  if (sign == word.npos || sign == 0 || sign + 1 == word.size())
    throw ConfigError(fmt::format("--draft {}: expected KEY=VALUE, as layers=4", word));
  std::string key = word.substr(0, sign);
  if (key == "layers") key = config.contains("n_layer") ? "n_layer" : "num_hidden_layers";
  std::vector<std::string> known{"layers"};
  for (const auto& [name, value] : config.items()) known.push_back(name);
  if (!config.contains(key)) {
    const std::string near = nearest_name(key, known);
    throw ConfigError(fmt::format("--draft {}: the model's config.json has no {}{}", word, key,
                                  near.empty() ? "" : "; did you mean " + near + "?"));
  }
  const std::string text = word.substr(sign + 1);
  nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  config[key] = value.is_discarded() ? nlohmann::json(text) : value;
  const bool is_depth = key == "n_layer" || key == "num_hidden_layers";
  if (auto types = config.find("layer_types"); is_depth && types != config.end() && types->is_array())
    while (value.is_number_unsigned() && types->size() > value.get<size_t>()) types->erase(types->size() - 1);
}

namespace fs = std::filesystem;

bool is_in_folder(const Recipe& recipe) { return fs::is_directory(recipe.model.path); }

}  // namespace

nlohmann::json draft_config(const Recipe& recipe, const std::vector<std::string>& values) {
  if (recipe.model.init != InitChoice::random)
    throw ConfigError(
        "--draft: the recipe begins with the model's weights, which a smaller model has not; set model.init=random, or "
        "make a draft with `weft export --draft` and sweep that");
  const fs::path path = recipe.model.path;
  nlohmann::json config = read_json_file(is_in_folder(recipe) ? path / "config.json" : path);
  if (!config.is_object()) throw FileError(fmt::format("{}: config.json is no JSON object", path.string()));
  for (const std::string& word : values) set_in_config(config, word);
  return config;
}

void write_draft(const Recipe& recipe, const nlohmann::json& config, const fs::path& folder) {
  create_folders(folder);
  if (is_in_folder(recipe))
    for (const auto& entry : fs::directory_iterator(recipe.model.path)) {
      const std::string kind = entry.path().extension().string(), name = entry.path().filename().string();
      const bool is_wanted = kind == ".json" || kind == ".model" || kind == ".txt" || kind == ".jinja";
      if (!entry.is_regular_file() || !is_wanted || name.find(".index.") != name.npos || name == "config.json")
        continue;
      fs::remove(folder / name);  // the copy of a file that is read-only cannot be written over
      fs::copy_file(entry.path(), folder / name);
    }
  write_file_durably(folder / "config.json", config.dump(2) + "\n");
}

}  // namespace weft
