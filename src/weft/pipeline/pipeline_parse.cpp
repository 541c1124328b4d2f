#include <algorithm>
#include <cctype>
#include <set>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"
#include "weft/base/nearest.h"
#include "weft/pipeline/pipeline_config.h"
#include "weft/recipe/recipe_read.h"

namespace weft {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

// Sets fields, and collects every problem before it speaks.
class Parser {
 public:
  Parser(PipelineConfig& config, const std::string& file) : config_(config), file_(file) {}

  void parse(const toml::table& top) {
    const std::vector<RecipeKey> keys = pipeline_keys(config_);
    for (const auto& [name, node] : top) {
      const std::string section(name.str());
      if (section == "source")
        sources(node);
      else
        this->section(section, node, keys);
    }
    if (config_.sources.empty())
      problems_.push_back(file_ + ": no [[source]]; as in [[source]] name = \"books\" files = [...]");
    for (const RecipeKey& key : keys)
      if (key.section() == "run" || config_.has(key.section())) need(key, file_);
  }

  // What would change the text of conversations, which the token stage does not look at.
  void judge_conversations() {
    for (const SourceConfig& source : config_.sources) {
      if (!source.has_conversations()) continue;
      const auto refuse = [&](const std::string& what) {
        problems_.push_back(fmt::format("{}: source {} has conversations ({}), but {}", file_, in_quotes(source.name),
                                        source.messages_key.empty() ? "prompt_key" : "messages_key", what));
      };
      if (config_.has("c4")) refuse("[c4] changes texts, not messages; give them a pipeline without it");
      if (config_.dedup.lines != "off") refuse("dedup.lines takes lines out of texts, not of messages; use \"off\"");
      const bool rows = source.format == "auto" || source.format == "jsonl" || source.format == "parquet";
      if (!rows && (source.format != "csv" || !source.messages_key.empty()))
        refuse(fmt::format("source.format is {}; use \"jsonl\" or \"parquet\"", in_quotes(source.format)));
    }
  }

  void judge_values() {
    for (const std::string& one : contradictions(config_)) problems_.push_back(file_ + ": " + one);
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::string place(const toml::source_region& region) const {
    return fmt::format("{}:{}:{}", file_, region.begin.line, region.begin.column);
  }

  void section(const std::string& name, const toml::node& node, const std::vector<RecipeKey>& keys) {
    std::vector<std::string> known = {"source"};
    for (const RecipeKey& key : keys) known.push_back(key.section());
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string near = nearest_name(name, known);
      std::set<std::string> all(known.begin(), known.end());
      problems_.push_back(fmt::format(
          "{}: [{}] is no section of a pipeline; {}", place(node.source()), shown_name(name),
          near.empty() ? fmt::format("there are {}", fmt::join(all, ", ")) : "did you mean [" + near + "]?"));
      return;
    }
    if (!node.is_table()) {
      problems_.push_back(
          fmt::format("{}: {} = {}: expected a section, [{}]", place(node.source()), name, shown(node), name));
      return;
    }
    config_.sections.push_back(name);
    for (const auto& [key, value] : *node.as_table()) {
      const std::string full = name + "." + std::string(key.str());
      set(full, key.source(), value, keys);
      config_.given.insert(full);
    }
  }

  void sources(const toml::node& node) {
    const toml::array* list = node.as_array();
    if (list == nullptr || !list->is_array_of_tables()) {
      problems_.push_back(fmt::format("{}: expected [[source]], once for each source", place(node.source())));
      return;
    }
    std::set<std::string> names;
    for (const toml::node& one : *list) {
      SourceConfig& source = config_.sources.emplace_back();
      const std::vector<RecipeKey> keys = source_keys(source);
      for (const auto& [key, value] : *one.as_table()) {
        const std::string full = "source." + std::string(key.str());
        set(full, key.source(), value, keys);
        source.given.insert(full);
      }
      for (const RecipeKey& key : keys) need(key, place(one.source()));
      const bool tame = std::all_of(source.name.begin(), source.name.end(),
                                    [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
      if (!tame || !names.insert(source.name).second)
        problems_.push_back(
            fmt::format("{}: source.name = {}: expected letters, digits, - and _, different for each source",
                        place(one.source()), in_quotes(source.name)));
    }
  }

  void set(const std::string& name, const toml::source_region& where, const toml::node& value,
           const std::vector<RecipeKey>& keys) {
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const RecipeKey& k) { return k.name == name; });
    if (key == keys.end()) {
      std::string near;
      for (const std::string& one : keys_like(name, keys)) near += (near.empty() ? "" : " or ") + one;
      problems_.push_back(fmt::format("{}: {} is no key of a pipeline{}", place(where), shown_name(name),
                                      near.empty() ? "" : "; did you mean " + near + "?"));
    } else if (!read_value(*key, value)) {
      problems_.push_back(
          fmt::format("{}: {} = {}: expected {}", place(value.source()), name, shown(value), expectation(*key)));
      bad_.insert(name);
    }
  }

  void need(const RecipeKey& key, const std::string& where) {
    const std::string value = value_of(key);
    if (key.allowed.example.empty() || (value != "\"\"" && value != "[]") || bad_.count(key.name)) return;
    problems_.push_back(fmt::format("{}: {} is missing: {}; as in [{}] {}", where, key.name, key.help, key.section(),
                                    key.allowed.example));
  }

  PipelineConfig& config_;
  const std::string& file_;
  std::vector<std::string> problems_;
  std::set<std::string> bad_;
};

toml::table parse_sections(const std::string& text, const std::string& file) {
  try {
    return parse_toml(text, file);
  } catch (const ConfigError& e) {
    const std::string what = e.what(), twice = "Error while parsing table header: cannot redefine existing ";
    const size_t at = what.find(twice);
    if (at == std::string::npos || what.find("'source'", at) == std::string::npos) throw;
    throw ConfigError(what.substr(0, at) + "a [source] beside another: each begins with [[source]], in two brackets");
  }
}

}  // namespace

PipelineConfig parse_pipeline(const std::string& text, const std::string& file) {
  PipelineConfig config;
  Parser parser(config, file);
  parser.parse(parse_sections(text, file));
  parser.judge_conversations();
  parser.judge_values();
  refuse(parser.problems(), "pipeline");
  return config;
}

PipelineConfig parse_pipeline_file(const std::string& file) {
  const MappedFile mapped(file);
  if (mapped.text().size() > kMaxBytes) throw ConfigError(file + ": more than a megabyte; is it a pipeline?");
  return parse_pipeline(std::string(mapped.text()), file);
}

}  // namespace weft
