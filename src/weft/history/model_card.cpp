#include "weft/history/model_card.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/base/error.h"
#include "weft/base/version.h"
#include "weft/models/hf_names.h"
#include "weft/recipe/recipe_keys.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnknown = "unknown";
constexpr double kJoulesPerKwh = 3.6e6;

// For a cell or a line of Markdown, also of a text that somebody else wrote.
std::string in_markdown(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '`' || c == '|' || c == '<' || c == '>') c = '?';
  return text.empty() ? kUnknown : text;
}

// YAML reads JSON's texts.
std::string in_yaml(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("| {} | {} |\n", in_markdown(name), in_markdown(value));
}

std::string table_head(const char* first, const char* second) {
  return fmt::format("\n| {} | {} |\n|---|---|\n", first, second);
}

std::string last_name(const std::string& path) {
  const fs::path whole = fs::path(path).lexically_normal();
  return whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
}

int64_t numbers_of(const std::vector<HfTensor>& tensors) {
  int64_t sum = 0;
  for (const HfTensor& t : tensors) sum += t.rows * t.cols();
  return sum;
}

class Card {
 public:
  explicit Card(const CardFacts& facts) : f_(facts), origin_(facts.origin) {}

  std::string text() {
    head();
    model();
    data();
    training();
    evaluation();
    energy();
    lineage();
    return std::move(text_);
  }

 private:
  void head() {
    text_ = fmt::format("---\nlicense: {}\nlibrary_name: transformers\n",
                        in_yaml(f_.licence.empty() ? kUnknown : f_.licence));
    std::set<std::string> datasets, metrics;
    for (const RunSource& s : sources())
      if (!s.dataset.empty()) datasets.insert(last_name(s.dataset));
    for (const auto& [name, value] : f_.results)
      if (!name.ends_with("_stderr")) metrics.insert(name.substr(name.rfind('.') + 1));  // npos + 1 is 0
    if (held_out()) metrics.insert("loss");
    if (f_.config.adapter) text_ += fmt::format("base_model: {}\n", in_yaml(last_name(f_.config.adapter->base)));
    yaml_list("datasets", datasets);
    yaml_list("metrics", metrics);
    text_ += fmt::format("tags:\n- weft\n---\n{}\n\n# {}\n\nWritten from records by {}. What was not recorded is {}.\n",
                         kCardMark, in_markdown(name()), kVersion, kUnknown);
  }

  void model() {
    const ModelSpec& m = f_.config.spec;
    text_ += "\n## Model\n" + table_head("", "");
    text_ += row("family", std::string(model_type_of(m.family)));
    ModelSpec plain = m;
    plain.adapter.reset();
    text_ += row("parameters", std::to_string(numbers_of(hf_tensors(plain))));
    if (f_.config.adapter) {
      text_ += row("parameters of the adapter", std::to_string(numbers_of(adapter_tensors(m))));
      text_ += row("base", last_name(f_.config.adapter->base));
    }
    text_ += row("layers", std::to_string(m.num_layers));
    text_ += row("positions at most", std::to_string(m.max_positions));
    const bool is_known = origin_.progress && origin_.progress->context > 0;
    text_ += row("context trained", is_known ? std::to_string(origin_.progress->context) : kUnknown);
    text_ += row("precision of training", setting("train.precision"));
    text_ += row("licence", f_.licence);
  }

  void data() {
    text_ += "\n## Data\n";
    if (sources().empty()) text_ += fmt::format("\nWhich data it was trained on: {}.\n", kUnknown);
    for (const RunSource& s : sources()) {
      text_ += table_head("file", in_markdown(last_name(s.path)).c_str()) + row("contents (hash)", s.contents);
      if (!s.dataset.empty()) text_ += row("dataset", last_name(s.dataset)) + row("version (hash)", s.version);
      text_ += row("licence", licence_of(s));
    }
  }

  void training() {
    text_ += "\n## Training\n" + table_head("", "");
    const auto& p = origin_.progress;
    text_ += row("steps", p ? std::to_string(p->step) : kUnknown);
    text_ += row("samples", p ? std::to_string(p->samples) : kUnknown);
    const bool same_length = p && origin_.recipe && origin_.recipe->phases.empty();
    text_ += row("tokens", same_length ? std::to_string(p->samples * origin_.recipe->train.seq_length) : kUnknown);
    text_ += row("seed", p ? std::to_string(p->seed) : kUnknown);
    text_ += row("program", attempt() ? attempt()->weft : kUnknown);
    text_ += row("machine", attempt() ? attempt()->machine : kUnknown);
    text_ += row("ranks", attempt() && attempt()->ranks > 0 ? std::to_string(attempt()->ranks) : kUnknown);
    if (!origin_.recipe) return;
    text_ += "\nThe recipe, beside its defaults:\n" + table_head("key", "value");
    std::map<std::string, std::string> usual;
    for (const KeyHelp& key : recipe_help()) usual[key.key] = key.fallback;
    Recipe recipe = *origin_.recipe;
    for (const RecipeKey& key : recipe_keys(recipe)) {
      const std::string value = value_of(key);
      const bool is_of_one_machine = names_files(key.name) || key.section() == "run" || key.section() == "fleet";
      if (!value.empty() && !is_of_one_machine && usual[key.name] != value) text_ += row(key.name, value);
    }
  }

  void evaluation() {
    text_ += "\n## Evaluation\n";
    if (f_.results.empty() && !held_out()) text_ += "\nNo results of this checkpoint are recorded.\n";
    if (f_.results.empty() && !held_out()) return;
    text_ += table_head("result", "value");
    if (const auto loss = held_out())
      text_ += row("held-out loss (nats a token)", fmt::format("{:.6g}, of {} tokens", loss->loss, loss->tokens));
    for (const auto& [name, value] : f_.results) text_ += row(name, fmt::format("{:.6g}", value));
  }

  void energy() {
    text_ += "\n## Energy\n" + table_head("", "");
    const double busy_s = origin_.run ? origin_.run->busy_s : 0;
    text_ += row("time of the whole run (hours)", busy_s > 0 ? fmt::format("{:.4g}", busy_s / 3600) : kUnknown);
    if (!f_.watts || busy_s <= 0) {
      text_ += row("energy", "unknown: no energy is recorded") + row("CO2", kUnknown);
      return;
    }
    const double kwh = busy_s * *f_.watts / kJoulesPerKwh;
    text_ += row("energy (estimate)",
                 fmt::format("{:.4g} kWh: that time at {:g} W, as the author of this card says", kwh, *f_.watts));
    text_ += row("CO2 (estimate)", fmt::format("{:.4g} kg, at {:g} g a kWh ({})", kwh * f_.grams_per_kwh / 1000,
                                               f_.grams_per_kwh, f_.source_of_grams));
  }

  void lineage() {
    text_ += "\n## Made from\n" + table_head("", "licence");
    for (const LicensedPart& part : origin_.parts) {
      const size_t blank = part.what.find(' ');
      text_ += row(part.what.substr(0, blank) + " " + last_name(part.what.substr(blank + 1)), part.licence);
    }
    if (origin_.parts.empty()) text_ += row(kUnknown, "");
  }

  void yaml_list(const char* key, const std::set<std::string>& values) {
    if (values.empty()) return;
    text_ += fmt::format("{}:\n", key);
    for (const std::string& value : values) text_ += fmt::format("- {}\n", in_yaml(value));
  }
  std::string name() const { return origin_.run ? last_name(origin_.run->path) : last_name(origin_.folder.string()); }
  std::vector<RunSource> sources() const {
    return origin_.progress ? origin_.progress->sources : std::vector<RunSource>();
  }
  std::optional<HeldOut> held_out() const {
    return origin_.progress ? origin_.progress->held_out : std::optional<HeldOut>();
  }
  const RunAttempt* attempt() const {
    return origin_.run && !origin_.run->attempts.empty() ? &origin_.run->attempts.back() : nullptr;
  }
  std::string setting(const std::string& name) const {
    if (!origin_.recipe) return kUnknown;
    Recipe recipe = *origin_.recipe;
    for (const RecipeKey& key : recipe_keys(recipe))
      if (key.name == name) return value_of(key);
    return kUnknown;
  }
  std::string licence_of(const RunSource& source) const {
    for (const LicensedPart& part : origin_.parts)
      if (std::find(part.names.begin(), part.names.end(), source.contents) != part.names.end()) return part.licence;
    return kUnknown;
  }

  const CardFacts& f_;
  const ModelOrigin& origin_;
  std::string text_;
};

}  // namespace

std::string model_card(const CardFacts& facts) { return Card(facts).text(); }

}  // namespace weft
