// pipeline.toml as one typed value (docs/formats/pipeline.md).
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/recipe/recipe_keys.h"

namespace weft {

struct SourceConfig {
  std::string name;
  std::vector<std::string> files;
  std::string format = "auto", separator, text_key = "text", url_key = "url", invalid_text = "aside";
  std::string messages_key;                // of JSONL: rows are conversations; empty: they are texts
  std::string prompt_key, completion_key;  // both, or none: rows are conversations of two messages
  std::vector<std::string> meta_keys;
  std::string licence;  // of its texts, "cc-by-4.0"; empty: not said
  double copies = 1;
  std::optional<double> weight;  // of all sources or of none
  std::set<std::string> given;   // names of the keys that are in the file: "source.separator"
  bool has_conversations() const { return !messages_key.empty() || !prompt_key.empty() || !completion_key.empty(); }
};

struct RunConfig {
  std::string dir, compression = "zst";
  int64_t threads = 0, shard_mb = 16, samples = 5;
};
struct ReadConfig {
  int64_t max_row_mb = 64;
  double max_ratio = 200;
};

// Rules of the filter stage: a section that is there switches its rule on.
struct LanguageConfig {
  std::vector<std::string> keep = {"en"};
  double min_share = 0.65;
};
struct LengthConfig {
  int64_t min_characters = 0, max_characters = 0, min_words = 0, max_words = 0;  // of the most, 0: no limit
};
struct SymbolsConfig {
  double max_non_alphanumeric = 0.4, max_digits = 0.3, max_upper = 0.5;
};
struct GopherQualityConfig {
  int64_t min_words = 50, max_words = 100000, min_stop_words = 2;
  double min_mean_word = 3, max_mean_word = 10, max_symbol_ratio = 0.1, max_bullet_lines = 0.9,
         max_ellipsis_lines = 0.3, min_alphabetic_words = 0.8;
};
struct GopherRepetitionConfig {
  double lines = 0.3, paragraphs = 0.3, line_characters = 0.2, paragraph_characters = 0.2;
  std::vector<double> top_ngrams = {0.20, 0.18, 0.16};                         // of 2, 3, 4 words
  std::vector<double> repeated_ngrams = {0.15, 0.14, 0.13, 0.12, 0.11, 0.10};  // of 5 to 10 words
};
struct C4Config {
  int64_t min_sentences = 5, min_words_per_line = 3;
  bool lines_end_in_punctuation = true, drop_javascript_lines = true, drop_policy_lines = true, drop_lorem_ipsum = true,
       drop_curly_brackets = true;
};
struct BadWordsConfig {
  std::string file;
  int64_t max_hits = 0;
};
struct PiiConfig {
  bool emails = true, phones = true, international_phones = true, ips = true, ipv6 = true, ibans = true, cards = true,
       ssns = true, api_keys = true, private_keys = true;
  std::string mask = "|||{}|||";
};
struct PerplexityConfig {
  std::string model;
  double min = 0, max = 0;
};

struct DedupConfig {
  bool documents = true, urls = false, near = true;
  std::string lines = "off";
  int64_t ngram = 5, bands = 20, rows = 6;
  double jaccard = 0.8;
};
struct DecontaminateConfig {
  std::vector<std::string> files;
  int64_t ngram = 13, min_words = 8, max_hits = 0;
};
struct TokensConfig {
  std::string tokenizer = "byte", chat_template, template_date = "2024-07-26";
  double valid_fraction = 0;
  int64_t shard_mtokens = 256;
};

struct PipelineConfig {
  RunConfig run;
  std::vector<SourceConfig> sources;
  ReadConfig read;
  LanguageConfig language;
  LengthConfig length;
  SymbolsConfig symbols;
  GopherQualityConfig gopher_quality;
  GopherRepetitionConfig gopher_repetition;
  C4Config c4;
  BadWordsConfig bad_words;
  PerplexityConfig perplexity;
  PiiConfig pii;
  DedupConfig dedup;
  DecontaminateConfig decontaminate;
  TokensConfig tokens;
  std::vector<std::string> sections;  // that are in the file
  std::set<std::string> given;        // names of the keys that are, but for those of sources

  bool has(const std::string& section) const;
  bool has_conversations() const;  // of any source
  bool has_weights() const;
};

// The keys of each section but [[source]]; fields point into the value.
std::vector<RecipeKey> pipeline_keys(PipelineConfig& config);
std::vector<RecipeKey> source_keys(SourceConfig& source);

// Throws ConfigError that names each key that is not known, with the nearest one, and each value that is not allowed,
// with file, line and column.
PipelineConfig parse_pipeline(const std::string& text, const std::string& file);
PipelineConfig parse_pipeline_file(const std::string& file);

// The values of these sections, for a stage's manifest: {"dedup.ngram": "5", ...}; "source" gives a list of them.
nlohmann::json parameters_of(const PipelineConfig& config, const std::vector<std::string>& sections);

// The parameters of a stage that was made before some keys of `mine` existed: these have their defaults there.
nlohmann::json with_defaults(nlohmann::json made, const nlohmann::json& mine);

// What read() gives. An Error of it becomes a ConfigError that begins with the key, unless it names the key itself.
template <class Read>
auto read_named(const std::string& key, const Read& read) {
  try {
    return read();
  } catch (const Error& e) {
    const std::string what = e.what();
    throw ConfigError(what.find(key) == std::string::npos ? fmt::format("{}: {}", key, what) : what);
  }
}

enum class FileFormat;

// --- checks across the values of a pipeline: contradictions, files that cannot be used ---

// A sentence each, about sections that are in the file.
std::vector<std::string> contradictions(const PipelineConfig& config);
// The given keys that do nothing for a source whose files have these formats.
std::vector<std::string> keys_without_effect(const SourceConfig& source, const std::set<FileFormat>& formats);
// Problems with files that keys name (sources excepted) and with parts that this build of weft leaves out; each begins
// with its key, at most one per stage. Reads the files as the stages will, which may take a while.
std::vector<std::string> unusable_files(const PipelineConfig& config);

}  // namespace weft
