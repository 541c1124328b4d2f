#include "weft/recipe/recipe.h"

#include <toml++/toml.h>
#include <algorithm>
#include <fstream>
#include <sstream>

#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/recipe/recipe_keys.h"

namespace weft {
namespace {

constexpr size_t kMaxBytes = 1 << 20;  // of a recipe

// Collects every problem before it speaks.
class Parser {
 public:
  explicit Parser(Recipe& recipe) : keys_(recipe_keys(recipe)) {}

  void table(const toml::table& top, const std::string& source) {
    for (const auto& [section, node] : top) {
      const toml::table* inside = node.as_table();
      if (inside == nullptr) {
        problem(std::string(section.str()), node, place(source, node), nearest_advice(std::string(section.str())));
        continue;
      }
      for (const auto& [key, value] : *inside)
        set(fmt::format("{}.{}", section.str(), key.str()), value, place(source, value));
    }
  }
  void override_with(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      problems_.push_back(fmt::format("'{}' on the command line: expected section.key=value", text));
      return;
    }
    const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
    const toml::table parsed = as_toml(value);
    set(key, *parsed.get("v"), "command line");
  }
  void require(bool holds, const std::string& what) {
    if (!holds) problems_.push_back(what);
  }
  void throw_problems() const {
    if (problems_.empty()) return;
    std::string text = problems_.size() == 1 ? "" : fmt::format("{} problems in the recipe:", problems_.size());
    for (const auto& p : problems_) text += (problems_.size() == 1 ? "" : "\n  ") + p;
    throw ConfigError(text);
  }

 private:
  static std::string place(const std::string& source, const toml::node& node) {
    return fmt::format("{}:{}:{}", source, node.source().begin.line, node.source().begin.column);
  }
  // The value as TOML; as a string where it is not.
  static toml::table as_toml(const std::string& value) {
    try {
      toml::table t = toml::parse("v = " + value);
      if (t.size() == 1 && t.get("v") != nullptr) return t;
    } catch (const toml::parse_error&) {  // plain text: below
    }
    return toml::table{{"v", value}};
  }
  static std::string shown(const toml::node& node) {
    std::ostringstream text;
    node.visit([&](const auto& v) { text << v; });
    std::string s = text.str();
    return s.size() > 80 ? s.substr(0, 77) + "..." : s;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& k : keys_) all.push_back(k.name);
    return all;
  }
  std::string nearest_advice(const std::string& name) const {
    const std::string last = name.substr(name.rfind('.') + 1);
    for (const auto& k : keys_) {  // the right key in the wrong section
      if (k.name.substr(k.name.find('.') + 1) == last) return fmt::format("did you mean {}?", k.name);
    }
    const std::string near = nearest_name(name, names());
    if (!near.empty()) return fmt::format("did you mean {}?", near);
    return "`weft train --help-recipe` lists all keys";
  }
  void problem(const std::string& key, const toml::node& value, const std::string& where, const std::string& advice) {
    problems_.push_back(fmt::format("{}: no recipe key {} (= {}); {}", where, key, shown(value), advice));
  }
  void set(const std::string& name, const toml::node& value, const std::string& where) {
    const auto key = std::find_if(keys_.begin(), keys_.end(), [&](const RecipeKey& k) { return k.name == name; });
    if (key == keys_.end()) return problem(name, value, where, nearest_advice(name));
    const std::string expected = std::visit([&](auto* field) { return assign(*key, *field, value); }, key->field);
    if (!expected.empty())
      problems_.push_back(fmt::format("{}: {} = {}: expected {}", where, name, shown(value), expected));
  }

  // Each returns what was expected, or nothing where the value is right.
  static std::string assign(const RecipeKey& key, std::string& field, const toml::node& value) {
    const auto v = value.value<std::string>();
    const bool chosen =
        v && (key.choices.empty() || std::find(key.choices.begin(), key.choices.end(), *v) != key.choices.end());
    if (!value.is_string() || !chosen)
      return key.choices.empty() ? "text in quotes" : "one of \"" + joined(key.choices, "\", \"") + "\"";
    field = *v;
    return "";
  }
  static std::string assign(const RecipeKey& key, int64_t& field, const toml::node& value) {
    const auto v = value.is_integer() ? value.value<int64_t>() : std::nullopt;
    if (!v || double(*v) < key.min || double(*v) > key.max) return "a whole number" + range(key);
    field = *v;
    return "";
  }
  static std::string assign(const RecipeKey& key, double& field, const toml::node& value) {
    const auto v = value.is_number() ? value.value<double>() : std::nullopt;
    const bool inside = v && std::isfinite(*v) && *v >= key.min && (key.below_max ? *v < key.max : *v <= key.max);
    if (!inside) return "a number" + range(key);
    field = *v;
    return "";
  }
  static std::string assign(const RecipeKey& key, std::optional<double>& field, const toml::node& value) {
    double v = 0;
    std::string expected = assign(key, v, value);
    if (expected.empty()) field = v;
    return expected;
  }
  static std::string assign(const RecipeKey&, bool& field, const toml::node& value) {
    if (!value.is_boolean()) return "true or false";
    field = *value.value<bool>();
    return "";
  }
  template <class T>
  static std::string assign(const RecipeKey& key, std::vector<T>& field, const toml::node& value) {
    std::vector<T> all;
    std::string expected;
    const auto add = [&](const toml::node& one) {
      T v{};
      if (const std::string e = assign(key, v, one); !e.empty()) expected = "a list, each " + e;
      all.push_back(v);
    };
    if (const toml::array* list = value.as_array())
      list->for_each([&](const auto& one) { add(one); });
    else
      add(value);
    if (expected.empty()) field = all;
    return expected;
  }
  static std::string range(const RecipeKey& key) {
    if (std::isinf(key.min) && std::isinf(key.max)) return "";
    if (std::isinf(key.max)) return fmt::format(" of at least {}", key.min);
    return fmt::format(" from {} to {} {}", key.min, key.below_max ? "below" : "at most", key.max);
  }
  static std::string joined(const std::vector<std::string>& all, const std::string& between) {
    std::string text;
    for (const auto& one : all) text += (text.empty() ? "" : between) + one;
    return text;
  }

  std::vector<RecipeKey> keys_;
  std::vector<std::string> problems_;
};

void check_together(const Recipe& r, Parser& p) {
  const auto& t = r.train;
  p.require(!r.model.path.empty(), "model.path is missing: the folder of the model, as in model.path = \"my-model\"");
  p.require(!r.data.train.empty(), "data.train is missing: the files to train on, as in data.train = [\"corpus.txt\"]");
  p.require(!r.run.dir.empty(), "run.dir is empty: the folder of the run, as in run.dir = \"runs/first\"");
  p.require(t.global_batch_size % (t.micro_batch_size * r.parallel.dp) == 0,
            fmt::format("train.global_batch_size = {} is no multiple of train.micro_batch_size x parallel.dp = {} x {}",
                        t.global_batch_size, t.micro_batch_size, r.parallel.dp));
  p.require(r.optimizer.lr_warmup_iters <= t.train_iters,
            fmt::format("optimizer.lr_warmup_iters = {} exceeds train.train_iters = {}", r.optimizer.lr_warmup_iters,
                        t.train_iters));
  p.require(r.optimizer.min_lr <= r.optimizer.lr,
            fmt::format("optimizer.min_lr = {} exceeds optimizer.lr = {}", r.optimizer.min_lr, r.optimizer.lr));
  p.require(
      r.data.weights.empty() || r.data.weights.size() == r.data.train.size(),
      fmt::format("data.weights has {} values for {} files of data.train", r.data.weights.size(), r.data.train.size()));
  p.require(r.data.valid.empty() || r.data.valid_fraction == 0,
            "data.valid and data.valid_fraction are both given: use one of them");
  p.require(t.eval_interval == 0 || !r.data.valid.empty() || r.data.valid_fraction > 0,
            fmt::format("train.eval_interval = {} needs data.valid or data.valid_fraction", t.eval_interval));
  p.require(r.optimizer.lr_decay_style != "wsd" || r.optimizer.lr_wsd_decay_iters > 0,
            "optimizer.lr_decay_style = \"wsd\" needs optimizer.lr_wsd_decay_iters");
}

}  // namespace

Recipe parse_recipe(const std::string& text, const std::string& source, const std::vector<std::string>& overrides) {
  Recipe recipe;
  Parser parser(recipe);
  try {
    parser.table(toml::parse(text, source), source);
  } catch (const toml::parse_error& e) {
    throw ConfigError(fmt::format("{}:{}:{}: {}", source, e.source().begin.line, e.source().begin.column,
                                  std::string(e.description())));
  }
  for (const std::string& o : overrides) parser.override_with(o);
  if (recipe.run.backend == "ref") recipe.train.precision = "f64";  // it computes in nothing else
  check_together(recipe, parser);
  parser.throw_problems();
  return recipe;
}

Recipe parse_recipe_file(const std::string& path, const std::vector<std::string>& overrides) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FileError(fmt::format("{}: cannot be read; is the path right?", path));
  std::string text(kMaxBytes + 1, '\0');
  in.read(text.data(), std::streamsize(text.size()));
  text.resize(size_t(in.gcount()));
  if (in.bad() || (text.empty() && !in.eof())) throw FileError(fmt::format("{}: cannot be read; is it a file?", path));
  if (text.size() > kMaxBytes)
    throw ConfigError(fmt::format("{}: more than {} bytes: this is no recipe", path, kMaxBytes));
  return parse_recipe(text, path, overrides);
}

}  // namespace weft
