#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/recipe/islands.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {
namespace {

std::string or_not_set(const std::string& value) { return value.empty() ? "not set" : value; }

// Calls `row` for every key, and `section` before the first of each section.
template <class Section, class Row>
void for_each_key(Section section, Row row) {
  std::string now;
  for (const KeyHelp& key : recipe_help()) {
    const size_t dot = key.key.find('.');
    if (now != key.key.substr(0, dot)) section(now = key.key.substr(0, dot));
    row(key);
  }
}

std::string default_of(const KeyHelp& key) { return key.needed ? "needed" : or_not_set(key.fallback); }

// Breaks the text between words; lines but the first begin with `indent` spaces.
std::string wrapped(const std::string& text, size_t columns, size_t indent) {
  std::string out, line;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (!line.empty() && line.size() + 1 + (end - at) > columns) {
      out += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + text.substr(at, end - at);
    at = end + 1;
  }
  return out + line;
}

// What is worth saying beside the type that the default shows.
std::string remark(const KeyHelp& key) {
  std::string choices;
  for (const auto& c : key.choices) choices += (choices.empty() ? "" : " | ") + c;
  return choices.empty() ? key.help : choices + "; " + key.help;
}

}  // namespace

std::string to_toml(const Recipe& recipe) {
  Recipe copy = as_stated(recipe);
  std::string text, section;
  for (const RecipeKey& key : recipe_keys(copy)) {
    if (key.section() != section) {
      text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", key.section());
      section = key.section();
    }
    if (const std::string value = value_of(key); !value.empty()) text += fmt::format("{} = {}\n", key.last(), value);
  }
  for (const Recipe::Phase& phase : recipe.phases) {
    text += fmt::format("\n[[phase]]\nfrom_step = {}\n", phase.from_step);
    if (!phase.require.empty()) {
      std::string all;
      for (const std::string& one : phase.require) all += (all.empty() ? "" : ", ") + in_quotes(one);
      text += fmt::format("require = [{}]\n", all);
    }
    for (const auto& [key, value] : phase.settings) text += fmt::format("{} = {}\n", key, value);
  }
  return text;
}

std::vector<std::string> recipe_differences(const Recipe& there, const Recipe& here) {
  Recipe a = there, b = here;
  const auto old_keys = recipe_keys(a), new_keys = recipe_keys(b);
  std::vector<std::string> all;
  for (size_t i = 0; i < old_keys.size(); ++i) {
    const std::string x = value_of(old_keys[i]), y = value_of(new_keys[i]);
    if (x != y && !old_keys[i].may_change && heeds(there.optimizer.name, old_keys[i]))
      all.push_back(fmt::format("{}: {} there, {} here", old_keys[i].name, or_not_set(x), or_not_set(y)));
  }
  return all;
}

std::vector<KeyHelp> recipe_help() {
  Recipe fallbacks;
  Islands none;
  std::vector<RecipeKey> keys = recipe_keys(fallbacks);
  for (RecipeKey& key : island_keys(none)) keys.push_back(std::move(key));
  std::vector<KeyHelp> all;
  for (const RecipeKey& key : keys)
    all.push_back({.key = key.name,
                   .type = std::string(type_of(key)),
                   .fallback = value_of(key),
                   .help = key.help,
                   .choices = key.choices(),
                   .expected = expectation(key),
                   .needed = is_needed(key, fallbacks),
                   .may_change = key.may_change});
  return all;
}

std::string recipe_reference(int columns) {
  constexpr size_t kKey = 29, kDefault = 13, kIndent = kKey + 1 + kDefault + 1, kNarrowest = 30;
  const size_t width = std::max(size_t(std::max(columns, 0)), kIndent + kNarrowest) - kIndent;
  std::string text =
      "A recipe is a TOML file; on the command line, section.key=value replaces what it says.\n"
      "[[phase]] tables give some keys other values from a step on: docs/tune/phases.md.\n";
  for_each_key([&](const std::string&) { text += "\n"; },
               [&](const KeyHelp& key) {
                 const auto cell = [](const std::string& of, size_t columns, size_t indent) {
                   const bool fits = of.size() <= columns;  // else the line ends with it
                   return fits ? fmt::format("{:<{}}", of, columns) : of + "\n" + std::string(indent, ' ');
                 };
                 text +=
                     fmt::format("{} {} {}\n", cell(key.key, kKey, kKey), cell(default_of(key), kDefault, kIndent - 1),
                                 wrapped(remark(key), width, kIndent));
               });
  return text;
}

std::string recipe_markdown() {
  std::string text;
  for_each_key(
      [&](const std::string& section) {
        text += fmt::format("{}## [{}]\n\n| key | default | value | meaning |\n|---|---|---|---|\n",
                            text.empty() ? "" : "\n", section);
      },
      [&](const KeyHelp& key) {
        const std::string fallback = key.fallback.empty() ? "not set" : "`" + key.fallback + "`";
        text += fmt::format("| `{}`{} | {} | {} | {} |\n", key.key, key.may_change ? " *free*" : "",
                            key.needed ? "needed" : fallback, key.expected, key.help);
      });
  return text;
}

}  // namespace weft
