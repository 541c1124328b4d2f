// Keys and values as text: for messages, documents and the resolved file.
#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/recipe/recipe_keys.h"

namespace weft {
namespace {

std::string print(const std::string& s) {
  std::string text = "\"";
  for (unsigned char c : s) {
    if (c == '"' || c == '\\')
      text += fmt::format("\\{}", char(c));
    else if (c < 0x20 || c == 0x7f)
      text += fmt::format("\\u{:04X}", c);
    else
      text += char(c);
  }
  return text + "\"";
}
std::string print(const ChoiceField& c) { return print(std::string(c.names[c.get()])); }
std::string print(int64_t v) { return std::to_string(v); }
std::string print(double v) {
  std::string text = fmt::format("{}", v);  // the shortest that reads back the same
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}
std::string print(bool v) { return v ? "true" : "false"; }
std::string print(const std::optional<double>& v) { return v ? print(*v) : ""; }
template <class T>
std::string print(const std::vector<T>& all) {
  std::string text = "[";
  for (const T& one : all) text += (text.size() > 1 ? ", " : "") + print(one);
  return text + "]";
}

std::string range(const Allowed& a) {
  if (a.max == kNoLimit || a.max == kMostCount)
    return a.min == -kNoLimit ? "" : fmt::format(" {} {:g}", a.above_min ? "above" : "of at least", a.min);
  return fmt::format(" {} {:g} {} {:g}", a.above_min ? "above" : "from", a.min, a.below_max ? "to below" : "to", a.max);
}

// "size" of "batch_size", not "iz".
bool has_words(const std::string& text, const std::string& words) {
  return words.size() >= 2 && ("_" + text + "_").find("_" + words) != std::string::npos;
}

}  // namespace

std::vector<std::string> RecipeKey::choices() const {
  const auto* choice = std::get_if<ChoiceField>(&field);
  if (choice == nullptr) return allowed.choices;
  return {choice->names.begin(), choice->names.end()};
}

bool is_needed(const RecipeKey& key, const Recipe& recipe) {
  if (key.section() == "objective" &&
      (recipe.train.objective != ObjectiveKind::distill || !recipe.objective.teacher_logits.empty()))
    return false;
  return !key.allowed.example.empty() && (key.section() != "data" || key.name == data_key_of(recipe.train.objective));
}

bool heeds(OptimizerKind optimizer, const RecipeKey& key) {
  if (key.name == "optimizer.momentum") return optimizer == OptimizerKind::sgd;
  if (key.name == "optimizer.min_8bit_size") return optimizer == OptimizerKind::adamw8bit;
  if (key.name.starts_with("optimizer.adam_")) return optimizer != OptimizerKind::sgd;
  return !key.name.starts_with("optimizer.muon_") || optimizer == OptimizerKind::muon;
}

std::string_view type_of(const RecipeKey& key) {
  constexpr const char* kTypes[] = {"text",          "whole number",          "number",
                                    "true or false", "list of texts",         "list of numbers",
                                    "number",        "list of whole numbers", "text"};
  return kTypes[key.field.index()];
}

std::string value_of(const RecipeKey& key) {
  if (const auto* choice = std::get_if<ChoiceField>(&key.field)) return print(*choice);
  return std::visit(
      [](const auto& field) -> std::string {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(field)>>) return print(*field);
        return "";
      },
      key.field);
}

std::string expectation(const RecipeKey& key) {
  const Allowed& a = key.allowed;
  std::string choices;
  for (const auto& c : key.choices()) choices += (choices.empty() ? "one of " : ", ") + print(c);
  const std::string_view type = type_of(key);
  if (!choices.empty()) return type == "list of texts" ? "a list, each " + choices : choices;
  if (type == "text") return "text in quotes";
  if (type == "list of texts") return "a list of texts in quotes";
  if (type == "true or false") return "true or false";
  return fmt::format("a {}{}{}", type, type.starts_with("list") ? ", each" : "", range(a));
}

std::vector<std::string> keys_like(const std::string& name, const std::vector<RecipeKey>& keys) {
  constexpr size_t kMost = 3, kLongest = 100;  // longer is no slip of the keyboard
  if (name.size() > kLongest) return {};
  const size_t dot = name.find('.');
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot), last = name.substr(dot + 1);
  const int few = std::max(1, int(last.size()) / 3);
  struct Candidate {
    int edits, section_edits;
    std::string name;
  };
  std::vector<Candidate> near;
  for (const RecipeKey& key : keys) {
    int edits = edit_distance(last, key.last());
    if (edits > few) edits = has_words(key.last(), last) || has_words(last, key.last()) ? few + 1 : few + 2;
    if (edits < few + 2) near.push_back({edits, edit_distance(section, key.section()), key.name});
  }
  std::stable_sort(near.begin(), near.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(a.edits, a.section_edits) < std::pair(b.edits, b.section_edits);
  });
  std::vector<std::string> names;
  for (const Candidate& c : near) {
    const bool as_near = c.edits == near[0].edits && (c.edits > few || c.section_edits == near[0].section_edits);
    if (as_near && names.size() < kMost) names.push_back(c.name);
  }
  return names;
}

void refuse(const std::vector<std::string>& problems, const char* what) {
  if (problems.empty()) return;
  if (problems.size() == 1) throw ConfigError(problems[0]);
  std::string text = fmt::format("{} problems in the {}:", problems.size(), what);
  for (size_t i = 0; i < std::min(problems.size(), kMostProblems); ++i) text += "\n  " + problems[i];
  if (problems.size() > kMostProblems) text += fmt::format("\n  and {} more", problems.size() - kMostProblems);
  throw ConfigError(text);
}

}  // namespace weft
