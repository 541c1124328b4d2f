#include "weft/forecast/toml_values.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/recipe/recipe_read.h"

namespace weft {

// A file, or a table of one: copies of the library's tables forget where they stood.
struct TomlTable::Node {
  toml::table file = {};
  std::shared_ptr<const Node> root = {};  // of a table within a file
  const toml::table* within = nullptr;
  const toml::table& table() const { return within != nullptr ? *within : file; }
};

namespace {

[[noreturn]] void refuse(const std::string& source, const toml::node& node, std::string_view key,
                         const std::string& expected) {
  throw ConfigError(fmt::format("{}:{}:{}: {} = {} must be {}", source, node.source().begin.line,
                                node.source().begin.column, key, shown(node), expected));
}

std::optional<double> number_in(const toml::node& node) {
  if (const auto* whole = node.as_integer()) return double(whole->get());
  if (const auto* real = node.as_floating_point(); real && std::isfinite(real->get())) return real->get();
  return {};
}

}  // namespace

std::string toml_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text)
    if (c == '"' || c == '\\')
      quoted += {'\\', c};
    else if ((c >= 0 && c < ' ') || c == '\x7f')
      quoted += fmt::format("\\u{:04x}", int(c));
    else
      quoted += c;
  return quoted + '"';
}

TomlTable::TomlTable(const std::string& text, const std::string& source)
    : node_(std::make_shared<Node>(Node{.file = parse_toml(text, source)})), source_(source) {}

bool TomlTable::has(std::string_view key) const { return node_->table().contains(key); }

void TomlTable::get(std::string_view key, std::string& value) const {
  const toml::node* node = node_->table().get(key);
  if (node == nullptr) return;
  if (!node->is_string()) refuse(source_, *node, key, "text");
  value = node->as_string()->get();
}

void TomlTable::need(std::string_view key, std::string& value) const {
  if (!has(key)) throw ConfigError(fmt::format("{}: {} is missing", source_, key));
  get(key, value);
}

void TomlTable::need(std::string_view key, std::vector<double>& value, double low, double high) const {
  const toml::node* node = node_->table().get(key);
  if (node == nullptr) throw ConfigError(fmt::format("{}: {} is missing", place(), key));
  const std::string expected = fmt::format("a list of numbers from {:g} to {:g}", low, high);
  const toml::array* list = node->as_array();
  if (list == nullptr || list->empty()) refuse(source_, *node, key, expected);
  value.clear();
  for (const toml::node& one : *list) {
    const std::optional<double> number = number_in(one);
    if (!number || *number < low || *number > high) refuse(source_, one, key, expected);
    value.push_back(*number);
  }
}

std::string TomlTable::place() const {
  const toml::source_position at = node_->table().source().begin;
  return fmt::format("{}:{}:{}", source_, at.line, at.column);
}

void TomlTable::get(std::string_view key, std::vector<std::string>& value) const {
  const toml::node* node = node_->table().get(key);
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr) refuse(source_, *node, key, "a list of texts");
  value.clear();
  for (const toml::node& one : *list) {
    if (!one.is_string()) refuse(source_, one, key, "a list of texts");
    value.push_back(one.as_string()->get());
  }
}

void TomlTable::get(std::string_view key, bool& value) const {
  const toml::node* node = node_->table().get(key);
  if (node == nullptr) return;
  if (!node->is_boolean()) refuse(source_, *node, key, "true or false");
  value = node->as_boolean()->get();
}

void TomlTable::get(std::string_view key, double& value, double low, double high) const {
  const toml::node* node = node_->table().get(key);
  if (node == nullptr) return;
  const std::optional<double> number = number_in(*node);
  if (!number || *number < low || *number > high)
    refuse(source_, *node, key, fmt::format("a number from {:g} to {:g}", low, high));
  value = *number;
}

void TomlTable::get(std::string_view key, int& value, int low, int high) const {
  const toml::node* node = node_->table().get(key);
  if (node == nullptr) return;
  const auto* whole = node->as_integer();
  if (whole == nullptr || whole->get() < low || whole->get() > high)
    refuse(source_, *node, key, fmt::format("a whole number from {} to {}", low, high));
  value = int(whole->get());
}

TomlTable TomlTable::table(std::string_view key) const {
  const toml::node* node = node_->table().get(key);
  if (node == nullptr) return {std::make_shared<Node>(), source_};
  if (!node->is_table()) refuse(source_, *node, key, "a table");
  return {std::make_shared<Node>(Node{.root = node_, .within = node->as_table()}), source_};
}

std::vector<TomlTable> TomlTable::tables(std::string_view key) const {
  std::vector<TomlTable> all;
  const toml::node* node = node_->table().get(key);
  if (node == nullptr) return all;
  const toml::array* list = node->as_array();
  if (list == nullptr) refuse(source_, *node, key, fmt::format("tables [[{}]]", key));
  for (const toml::node& one : *list) {
    if (!one.is_table()) refuse(source_, one, key, fmt::format("tables [[{}]]", key));
    all.push_back({std::make_shared<Node>(Node{.root = node_, .within = one.as_table()}), source_});
  }
  return all;
}

void TomlTable::refuse_others(const std::vector<std::string>& known) const {
  for (const auto& [key, node] : node_->table()) {
    const std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_name(name, known);
    throw ConfigError(fmt::format("{}:{}:{}: there is no key {}{}", source_, node.source().begin.line,
                                  node.source().begin.column, shown_name(name),
                                  nearest.empty() ? fmt::format(": they are {}", fmt::join(known, ", "))
                                                  : fmt::format("; the nearest is {}", nearest)));
  }
}

}  // namespace weft
