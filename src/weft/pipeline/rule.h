// Rules of the filter stage: each looks at one document, may change it, and says if it goes.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/pipeline/document.h"
#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/report.h"

namespace weft {

// Immutable: any thread may ask it.
class Rule {
 public:
  virtual ~Rule() = default;
  // `changes` counts what was taken out or masked, by name.
  virtual std::optional<Drop> judge(Document& document, std::map<std::string, int64_t>& changes) const = 0;
};

std::unique_ptr<Rule> make_length_rule(const LengthConfig& config);
std::unique_ptr<Rule> make_symbols_rule(const SymbolsConfig& config);
std::unique_ptr<Rule> make_language_rule(const LanguageConfig& config);
// Empty where the language rule knows this code ("en", "zh-Hant", "zh"); else what it is not, and the code of the
// language of that name, or that others call so.
std::string why_no_language(const std::string& code);
std::unique_ptr<Rule> make_gopher_quality_rule(const GopherQualityConfig& config);        // Rae et al. 2021, table A1
std::unique_ptr<Rule> make_gopher_repetition_rule(const GopherRepetitionConfig& config);  // the same, section A1.1
std::unique_ptr<Rule> make_c4_rule(const C4Config& config);  // Raffel et al. 2020, section 2.2
// Throws FileError where its file cannot be read, or holds no word.
std::unique_ptr<Rule> make_bad_words_rule(const BadWordsConfig& config);
std::unique_ptr<Rule> make_perplexity_rule(const PerplexityConfig& config);
std::unique_ptr<Rule> make_pii_rule(const PiiConfig& config);

// Those whose sections are in the pipeline, in the order in which they are asked. Throws ConfigError that names the key
// of a file that cannot be used.
std::vector<std::unique_ptr<Rule>> make_rules(const PipelineConfig& config);
// Their names, in that order.
std::vector<std::string> rule_names(const PipelineConfig& config);

}  // namespace weft
