#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/nearest.h"
#include "weft/recipe/islands.h"
#include "weft/recipe/recipe_hints.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/recipe/recipe_read.h"
#include "weft/recipe/requirement.h"

namespace weft {
namespace {

constexpr size_t kMaxBytes = 1 << 20;  // of a recipe

// Where a value stands: in the file, or (behind all of that) on the command line.
struct Place {
  std::string text;
  uint32_t line = std::numeric_limits<uint32_t>::max(), column = 0;
};

// "[a.txt, b.txt]"
bool is_bare_list(const std::string& value) { return value.starts_with('[') && value.ends_with(']'); }

std::string quoted_list(const std::string& bare) {
  std::string all;
  std::istringstream items(bare.substr(1, bare.size() - 2));
  for (std::string one; std::getline(items, one, ',');) {
    std::erase_if(one, [](char c) { return c == '"' || c == '\'' || c == ' '; });
    all += (all.empty() ? "" : ", ") + in_quotes(one);
  }
  return "[" + all + "]";
}

// Sets the fields of a recipe, and collects every problem before it speaks.
class Parser {
 public:
  Parser(Recipe& recipe, Islands& islands, const std::string& source)
      : source_(source), keys_(recipe_keys(recipe)), phases_(recipe.phases) {
    for (RecipeKey& key : island_keys(islands)) keys_.push_back(std::move(key));
  }

  void table(const toml::table& top) {
    for (const auto& [name, node] : top) {
      const std::string section(name.str());
      if (section == "phase") {
        read_phases(node, place(name.source()));
        continue;
      }
      const toml::table* inside = node.as_table();
      if (inside == nullptr || inside->empty()) {
        if (!is_section(section))
          refuse_name(section, node, place(name.source()));
        else if (inside == nullptr)
          refuse_section(section, node, place(name.source()));
        continue;
      }
      for (const auto& [key, value] : *inside) {
        const std::string full = fmt::format("{}.{}", section, key.str());
        if (const RecipeKey* known = find(full))
          set(*known, value, place(value.source()));
        else
          refuse_name(full, value, place(key.source()));
      }
    }
  }

  void override_with(const std::string& text) {
    const Place here{.text = "command line"};
    const size_t equals = text.find('=');
    if (equals == std::string::npos) return add(here, fmt::format("{}: expected section.key=value", in_quotes(text)));
    const std::string name = text.substr(0, equals);
    if (name == "phase" || name.starts_with("phase."))
      return add(here,
                 fmt::format("{}: [[phase]] tables are read from the recipe's file alone; write them there", name));
    const RecipeKey* key = find(name);
    const toml::table value = override_value(text.substr(equals + 1), key);
    if (key != nullptr && std::holds_alternative<std::vector<std::string>*>(key->field) &&
        value.get("v")->is_string() && is_bare_list(text.substr(equals + 1))) {
      bad_.insert(name);
      return add(here, fmt::format("{}: expected quotes around each text of a list, and single ones around it all, as "
                                   "in '{}={}'",
                                   text, name, quoted_list(text.substr(equals + 1))));
    }
    if (key != nullptr)
      set(*key, *value.get("v"), here);
    else if (is_section(name))
      refuse_section(name, *value.get("v"), here);
    else
      refuse_name(name, *value.get("v"), here);
  }

  bool is_given(const std::string& key) const { return places_.count(key) > 0; }

  // After all values: those that are missing, and those that do not fit each other.
  void check(const Recipe& recipe, const Islands& islands) {
    for (const RecipeKey& key : keys_) {
      const std::string value = value_of(key);
      if (is_needed(key, recipe) && (value == "\"\"" || value == "[]") && !bad_.count(key.name))
        add({.text = source_},
            fmt::format("{} is missing: {}; as in [{}] {}", key.name, key.help, key.section(), key.allowed.example));
    }
    std::vector<Conflict> all = conflicts(recipe);
    for (Conflict& c : island_conflicts(islands, recipe)) all.push_back(std::move(c));
    for (const Conflict& c : all) {
      const bool told = bad_.count(c.key) || std::any_of(c.others.begin(), c.others.end(),
                                                         [&](const auto& other) { return bad_.count(other) > 0; });
      if (told) continue;
      const auto set = places_.find(c.key);
      add(set == places_.end() ? Place{.text = source_} : set->second,
          fmt::format("{} = {}{}: expected {}{}", c.key, value_of(*find(c.key)),
                      set == places_.end() ? " (its default)" : "", c.expected,
                      c.nearest.empty() ? "" : "; the nearest that works: " + c.nearest));
    }
    if (problems_.empty()) check_phases(recipe);
  }

  void throw_problems() {
    if (problems_.empty()) return;
    std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) {
      return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
    });
    std::vector<std::string> texts;
    for (const Problem& one : problems_) texts.push_back(one.text);
    refuse(texts, "recipe");
  }

 private:
  struct Problem {
    Place place;
    std::string text;
  };

  Place place(const toml::source_region& region) const {
    return {.text = fmt::format("{}:{}:{}", source_, region.begin.line, region.begin.column),
            .line = region.begin.line,
            .column = region.begin.column};
  }
  const RecipeKey* find(const std::string& name) const {
    const auto key = std::find_if(keys_.begin(), keys_.end(), [&](const RecipeKey& k) { return k.name == name; });
    return key == keys_.end() ? nullptr : &*key;
  }
  bool is_section(const std::string& name) const {
    return std::any_of(keys_.begin(), keys_.end(), [&](const RecipeKey& k) { return k.section() == name; });
  }

  // What is wrong with the phases; of values that do not fit each other, those of the first steps that have some.
  void check_phases(const Recipe& recipe) {
    const auto place_of = [&](int phase) { return phase < 0 ? Place{.text = source_} : phase_places_[size_t(phase)]; };
    for (const PhaseProblem& p : phase_problems(recipe)) add(place_of(p.phase), p.text);
    if (!problems_.empty() || !has_phases(recipe)) return;
    for (PhaseSpan& span : phase_spans(recipe)) {
      for (const RecipeKey& key : recipe_keys(span.recipe))
        if (const std::string value = value_of(key);
            span.phase > 0 && is_needed(key, span.recipe) && (value == "\"\"" || value == "[]"))
          add(place_of(span.phase - 1),
              fmt::format("{} is missing in steps {} to {}: {}; as in {}.{}", key.name, span.first_step,
                          span.end_step - 1, key.help, key.section(), key.allowed.example));
      for (const Conflict& c : conflicts(span.recipe)) {
        std::string value;
        for (const RecipeKey& key : recipe_keys(span.recipe))
          if (key.name == c.key) value = value_of(key);
        add(place_of(span.phase - 1),
            fmt::format("{} = {} in steps {} to {}: expected {}{}", c.key, value, span.first_step, span.end_step - 1,
                        c.expected, c.nearest.empty() ? "" : "; the nearest that works: " + c.nearest));
      }
      if (!problems_.empty()) return;
    }
    check_layouts(phase_spans(recipe));
  }

  // A process that begins a layout reads what the steps before it have left.
  void check_layouts(const std::vector<PhaseSpan>& spans) {
    for (size_t i = 1; i < spans.size(); ++i) {
      if (spans[i].layout_from == spans[i - 1].layout_from) continue;
      for (const Conflict& c : conflicts(on_layout_of(spans[i - 1].recipe, spans[i].recipe)))
        add(phase_places_[size_t(spans[i].phase - 1)],
            fmt::format("the layout of steps {} to {} must also fit to what the steps before them are evaluated with; "
                        "{}: expected {}{}",
                        spans[i].first_step, spans[i].end_step - 1, c.key, c.expected,
                        c.nearest.empty() ? "" : "; the nearest that works: " + c.nearest));
    }
  }

  void read_phases(const toml::node& node, const Place& where) {
    const toml::array* all = node.as_array();
    if (all == nullptr || !all->is_array_of_tables())
      return add(where, "phase: expected tables, [[phase]], each with a from_step and the keys that change there");
    for (const toml::node& one : *all) read_phase(*one.as_table(), place(one.source()));
  }

  void read_phase(const toml::table& table, const Place& where) {
    Recipe::Phase phase;
    Recipe scratch;
    Islands no_islands;  // known, and not to change
    std::vector<RecipeKey> keys = recipe_keys(scratch);
    for (RecipeKey& key : island_keys(no_islands)) keys.push_back(std::move(key));
    std::map<std::string, std::string> values;
    const toml::node* from = table.get("from_step");
    const auto step = from != nullptr && from->is_integer() ? from->value<int64_t>() : std::nullopt;
    if (!step || *step < 1 || double(*step) > kMostCount)
      add(where,
          fmt::format("[[phase]]: expected from_step = N, a whole number from 1 to {}: the step, counted from 0, "
                      "that is its first",
                      int64_t(kMostCount)));
    phase.from_step = step.value_or(0);
    for (const auto& [name, node] : table) {
      if (name.str() == "from_step") continue;
      if (name.str() == "require") {
        read_requirements(node, place(name.source()), phase);
        continue;
      }
      const toml::table* inside = node.as_table();
      if (inside == nullptr || inside->empty())
        refuse_bare_name(std::string(name.str()), place(name.source()), keys);
      else
        for (const auto& [key, value] : *inside)
          read_phase_value(fmt::format("{}.{}", name.str(), key.str()), value, place(key.source()), keys, values);
    }
    for (const RecipeKey& key : keys)
      if (values.count(key.name)) phase.settings.emplace_back(key.name, values[key.name]);
    phases_.push_back(std::move(phase));
    phase_places_.push_back(where);
  }

  void read_requirements(const toml::node& value, const Place& where, Recipe::Phase& phase) {
    if (value.is_string()) phase.require.push_back(*value.value<std::string>());
    if (const toml::array* all = value.as_array())
      for (const toml::node& one : *all) phase.require.push_back(one.value<std::string>().value_or(""));
    for (const std::string& one : phase.require)
      if (!parse_requirement(one))
        return add(where, fmt::format("[[phase]]: require = {}: expected {}", shown(value), kRequirementForm));
    if (phase.require.empty())
      add(where, fmt::format("[[phase]]: require = {}: expected a list of these: {}", shown(value), kRequirementForm));
  }

  // Of a phase: "lr = 3", "fromstep = 3".
  void refuse_bare_name(const std::string& name, const Place& where, const std::vector<RecipeKey>& keys) {
    std::string meant = nearest_name(name, {"from_step"});
    for (const std::string& key : meant.empty() ? keys_like(name, keys) : std::vector<std::string>())
      meant += (meant.empty() ? "" : " or ") + key;
    if (const std::string hint = hint_of_key(name); meant.empty() && !hint.empty())
      meant = "; " + hint;
    else if (!meant.empty())
      meant = fmt::format("; did you mean {}?", meant);
    add(where, fmt::format("[[phase]]: {}: expected section.key = value, as in optimizer.lr = 1e-4{}", shown_name(name),
                           meant));
  }

  void read_phase_value(const std::string& name, const toml::node& value, const Place& where,
                        const std::vector<RecipeKey>& keys, std::map<std::string, std::string>& values) {
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const RecipeKey& k) { return k.name == name; });
    if (key == keys.end()) return refuse_name(name, value, where);
    if (!is_phase_key(name))
      return add(where, fmt::format("{} = {} cannot change in a [[phase]]; these keys may: {}", name, shown(value),
                                    phase_keys_text()));
    if (!read_value(*key, value)) return refuse_value(*key, value, where);
    values[name] = value_of(*key);
  }

  // As TOML; as plain text where it is none, or where only text is wanted (run.dir=2024 is a folder).
  static toml::table override_value(const std::string& value, const RecipeKey* key) {
    const bool text =
        key != nullptr && (type_of(*key) == "text" || std::holds_alternative<std::vector<std::string>*>(key->field));
    try {
      toml::table parsed = parse_toml("v = " + value, "command line");
      const toml::node* v = parsed.get("v");
      if (parsed.size() == 1 && (!text || v->is_string() || v->is_array())) return parsed;
    } catch (const ConfigError&) {  // plain text
    }
    return toml::table{{"v", value}};
  }

  void set(const RecipeKey& key, const toml::node& value, const Place& where) {
    if (read_value(key, value)) {
      places_[key.name] = where;
      return;
    }
    bad_.insert(key.name);
    refuse_value(key, value, where);
  }

  void refuse_value(const RecipeKey& key, const toml::node& value, const Place& where) {
    std::string expected = expectation(key);
    if (key.allowed.max == kMostCount) expected += fmt::format(" and at most {}", int64_t(kMostCount));
    if (const auto choices = key.choices(); value.is_string() && !choices.empty()) {
      const std::string given = *value.value<std::string>(), near = nearest_name(given, choices);
      if (const std::string hint = hint_of_value(key.name, given); !hint.empty())
        expected += "; " + hint;
      else if (!near.empty())
        expected += fmt::format("; did you mean \"{}\"?", near);
    }
    add(where, fmt::format("{} = {}: expected {}", key.name, shown(value), expected));
  }

  // optimizer = "adam"
  void refuse_section(const std::string& section, const toml::node& value, const Place& where) {
    std::string text = fmt::format("{} = {}: expected a section, [{}]", section, shown(value), section);
    if (value.is_string() && value.value<std::string>() != "")
      if (const std::string hint = hint_of_section(section, *value.value<std::string>()); !hint.empty())
        text += ", as in " + hint;
    add(where, text);
  }

  void refuse_name(const std::string& name, const toml::node& value, const Place& where) {
    const std::string problem = fmt::format("no recipe key {} (= {})", shown_name(name), shown(value));
    if (problems_.size() >= kMostProblems) return add(where, problem);  // hardly told, and there may be very many
    if (const std::string hint = hint_of_key(name); !hint.empty() && !value.is_table())
      return add(where, problem + "; " + hint);
    std::string meant;
    if (name.find('.') == std::string::npos && value.is_table()) {
      std::vector<std::string> sections;
      for (const RecipeKey& key : keys_) sections.push_back(key.section());
      meant = nearest_name(name, sections);
      if (!meant.empty()) meant = "[" + meant + "]";
    } else {
      for (const auto& key : keys_like(name, keys_)) meant += (meant.empty() ? "" : " or ") + key;
    }
    add(where, problem + (meant.empty() ? "; `weft train --help-recipe` lists all keys"
                                        : fmt::format("; did you mean {}?", meant)));
  }
  void add(const Place& where, const std::string& what) { problems_.push_back({where, where.text + ": " + what}); }

  const std::string source_;
  std::vector<RecipeKey> keys_;
  std::vector<Recipe::Phase>& phases_;
  std::vector<Place> phase_places_;
  std::vector<Problem> problems_;
  std::map<std::string, Place> places_;  // of the keys that were given
  std::set<std::string> bad_;            // keys whose value is told already
};

struct WholeRecipe {
  Recipe recipe;
  Islands islands;
};

WholeRecipe parse_whole(const std::string& text, const std::string& source, const std::vector<std::string>& overrides) {
  WholeRecipe whole;
  Recipe& recipe = whole.recipe;
  Parser parser(recipe, whole.islands, source);
  parser.table(parse_toml(text, source));
  for (const std::string& o : overrides) parser.override_with(o);
  if (recipe.train.epochs > 0 && !parser.is_given("train.train_iters")) recipe.train.train_iters = 0;
  if (recipe.run.backend == BackendKind::ref)
    recipe.train.precision = PrecisionChoice::f64;  // it computes in nothing else
  parser.check(recipe, whole.islands);
  parser.throw_problems();
  return whole;
}

std::string text_of_recipe(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FileError(fmt::format("{}: cannot be read; is the path right?", path));
  std::string text(kMaxBytes + 1, '\0');
  in.read(text.data(), std::streamsize(text.size()));
  text.resize(size_t(in.gcount()));
  if (in.bad() || (text.empty() && !in.eof())) throw FileError(fmt::format("{}: cannot be read; is it a file?", path));
  if (text.size() > kMaxBytes)
    throw ConfigError(fmt::format("{}: more than {} bytes: this is no recipe", path, kMaxBytes));
  return text;
}

}  // namespace

Recipe parse_recipe(const std::string& text, const std::string& source, const std::vector<std::string>& overrides) {
  return parse_whole(text, source, overrides).recipe;
}

Recipe parse_recipe_file(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_recipe(text_of_recipe(path), path, overrides);
}

Islands parse_islands(const std::string& text, const std::string& source, const std::vector<std::string>& overrides) {
  return parse_whole(text, source, overrides).islands;
}

Islands parse_islands_file(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_islands(text_of_recipe(path), path, overrides);
}

}  // namespace weft
