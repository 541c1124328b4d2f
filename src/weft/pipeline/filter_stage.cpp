#include "weft/base/hashing.h"
#include "weft/pipeline/open_shards.h"
#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/rule.h"
#include "weft/pipeline/stages.h"

namespace weft {
namespace {

constexpr int kFilterVersion = 4;  // 2, 3: more kinds of personal data; 4: less that only looks like it

// In this order: cheap rules that drop much first, rules that mask last.
struct NamedRule {
  const char* section;
  std::unique_ptr<Rule> (*make)(const PipelineConfig& config);
};
constexpr NamedRule kRules[] = {
    {"length", [](const PipelineConfig& c) { return make_length_rule(c.length); }},
    {"language", [](const PipelineConfig& c) { return make_language_rule(c.language); }},
    {"c4", [](const PipelineConfig& c) { return make_c4_rule(c.c4); }},
    {"gopher_quality", [](const PipelineConfig& c) { return make_gopher_quality_rule(c.gopher_quality); }},
    {"symbols", [](const PipelineConfig& c) { return make_symbols_rule(c.symbols); }},
    {"gopher_repetition", [](const PipelineConfig& c) { return make_gopher_repetition_rule(c.gopher_repetition); }},
    {"bad_words",
     [](const PipelineConfig& c) {
       return read_named("bad_words.file", [&c] { return make_bad_words_rule(c.bad_words); });
     }},
    {"perplexity",
     [](const PipelineConfig& c) {
       return read_named("perplexity.model", [&c] { return make_perplexity_rule(c.perplexity); });
     }},
    {"pii", [](const PipelineConfig& c) { return make_pii_rule(c.pii); }},
};

}  // namespace

std::vector<std::string> rule_names(const PipelineConfig& config) {
  std::vector<std::string> names;
  for (const NamedRule& rule : kRules)
    if (config.has(rule.section)) names.emplace_back(rule.section);
  return names;
}

std::vector<std::unique_ptr<Rule>> make_rules(const PipelineConfig& config) {
  std::vector<std::unique_ptr<Rule>> rules;
  for (const NamedRule& rule : kRules)
    if (config.has(rule.section)) rules.push_back(rule.make(config));
  return rules;
}

StageIdentity filter_identity(const PipelineConfig& config, const StageResult& before) {
  nlohmann::json parameters = parameters_of(config, rule_names(config));
  if (config.has("bad_words")) parameters["bad_words.hash"] = hash_of_file(config.bad_words.file);
  if (config.has("perplexity")) parameters["perplexity.hash"] = hash_of_file(config.perplexity.model);
  return {.name = "filter", .version = kFilterVersion, .parameters = parameters, .inputs = before.hash};
}

StageResult run_filter_stage(const PipelineConfig& config, const StageResult& before, const std::filesystem::path& path,
                             const StageContext& context) {
  const StageFolder folder(path, filter_identity(config, before), context);
  if (!folder.is_complete()) {
    const auto rules = make_rules(config);
    const DocumentJudge judge = [&rules](Document& d, std::map<std::string, int64_t>& changes) -> std::optional<Drop> {
      for (const auto& rule : rules)
        if (auto drop = rule->judge(d, changes)) return drop;
      return {};
    };
    run_map_stage(folder, before, context, [&](int64_t) { return judge; });
  }
  return open_stage(path);
}

}  // namespace weft
