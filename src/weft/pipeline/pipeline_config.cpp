#include "weft/pipeline/pipeline_config.h"

#include <algorithm>

#include "weft/base/json.h"
#include "weft/pipeline/codec.h"
#include "weft/pipeline/document_encoder.h"
#include "weft/pipeline/row_document.h"
#include "weft/pipeline/row_template.h"
#include "weft/pipeline/rule.h"
#include "weft/pipeline/stages.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

class Judge {
 public:
  explicit Judge(const PipelineConfig& config) : c_(config) {}
  std::vector<std::string> run() {
    ranges();
    for (const SourceConfig& source : c_.sources) keys(source);
    if (c_.has("language")) languages();
    if (c_.has_weights()) weights();
    without_effect();
    return std::move(found_);
  }

 private:
  void ranges() {
    const LengthConfig& l = c_.length;
    const GopherQualityConfig& g = c_.gopher_quality;
    if (l.max_characters > 0) range("length", "characters", l.min_characters, l.max_characters);
    if (l.max_words > 0) range("length", "words", l.min_words, l.max_words);
    range("gopher_quality", "words", g.min_words, g.max_words);
    range("gopher_quality", "mean_word", g.min_mean_word, g.max_mean_word);
    if (c_.perplexity.max > 0 && c_.perplexity.min > c_.perplexity.max)
      found_.push_back(fmt::format("perplexity.min = {} is more than perplexity.max = {}: every document would go",
                                   c_.perplexity.min, c_.perplexity.max));
  }
  template <class T>
  void range(const std::string& section, const std::string& what, T least, T most) {
    if (!c_.has(section) || least <= most) return;
    found_.push_back(fmt::format("{0}.min_{1} = {2} is more than {0}.max_{1} = {3}: every document would go", section,
                                 what, least, most));
  }
  void keys(const SourceConfig& s) {
    const auto refuse = [&](const std::string& why) {
      found_.push_back(fmt::format("source {}: {}", in_quotes(s.name), why));
    };
    if (s.prompt_key.empty() != s.completion_key.empty())
      refuse(fmt::format("source.{} without source.{}: a conversation of two messages has both",
                         s.prompt_key.empty() ? "completion_key" : "prompt_key",
                         s.prompt_key.empty() ? "prompt_key" : "completion_key"));
    if (!s.messages_key.empty() && !s.prompt_key.empty())
      refuse(
          "source.messages_key and source.prompt_key: its rows are either lists of messages or pairs; leave one out");
    for (const auto& [key, text] :
         {std::pair{"text_key", s.text_key}, {"prompt_key", s.prompt_key}, {"completion_key", s.completion_key}})
      try {
        const RowTemplate parsed(text);
      } catch (const ConfigError& e) { refuse(fmt::format("source.{} = {}", key, e.what())); }
  }
  void languages() {
    if (c_.language.keep.empty())
      found_.emplace_back("language.keep is empty: every document would go; as in keep = [\"en\"]");
    for (const std::string& code : c_.language.keep) {
      const std::string why = why_no_language(code);
      if (!why.empty()) found_.push_back("language.keep: " + why);
    }
  }

  void weights() {
    double all = 0;
    for (const SourceConfig& s : c_.sources) {
      const std::string name = in_quotes(s.name);
      if (!s.weight && s.given.count("source.weight")) return;  // one that was refused already
      if (!s.weight)
        found_.push_back(fmt::format(
            "source {}: has no source.weight, but another source has one: give one to each, or to none", name));
      else if (*s.weight > 0 && s.copies == 0)
        found_.push_back(fmt::format(
            "source {}: source.weight = {} with source.copies = 0: no document of it would be there; set weight = 0",
            name, *s.weight));
      all += s.weight.value_or(0);
    }
    if (all == 0) found_.emplace_back("source.weight is 0 for all sources: nothing would be trained on");
    if (!c_.has("tokens")) found_.emplace_back("source.weight has no effect without [tokens]; leave it out");
  }

  void without_effect() {
    for (const char* key : {"dedup.ngram", "dedup.bands", "dedup.rows", "dedup.jaccard"})
      if (!c_.dedup.near && c_.given.count(key))
        found_.push_back(fmt::format("{} has no effect with dedup.near = false; leave it out", key));
    const LengthConfig& l = c_.length;
    if (c_.has("length") && l.min_characters + l.max_characters + l.min_words + l.max_words == 0)
      found_.emplace_back("[length] has no effect without a bound; as in min_words = 50");
    if (c_.has("perplexity") && c_.perplexity.min == 0 && c_.perplexity.max == 0)
      found_.emplace_back("[perplexity] has no effect without perplexity.min or perplexity.max");
  }

  const PipelineConfig& c_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> keys_without_effect(const SourceConfig& source, const std::set<FileFormat>& formats) {
  std::vector<std::string> found;
  const auto judge = [&](const char* key, bool read, const char* why) {
    if (!read && source.given.count(key))
      found.push_back(fmt::format("source {}: {} has no effect: {}; leave it out", in_quotes(source.name), key, why));
  };
  const bool text = formats.count(FileFormat::kText) > 0;
  const bool fields = std::any_of(formats.begin(), formats.end(),
                                  [](FileFormat f) { return has_json_rows(f) || f == FileFormat::kCsv; });
  judge("source.separator", text, "none of its files is text");
  for (const char* key : {"source.text_key", "source.url_key", "source.meta_keys"})
    judge(key, fields, "none of its files is JSON, Parquet or CSV");
  judge(
      "source.text_key", !source.has_conversations(),
      source.messages_key.empty() ? "its texts are pairs (prompt_key)" : "its texts are conversations (messages_key)");
  judge("source.invalid_text", !source.has_conversations(), "what is no text in a conversation is always put aside");
  return found;
}

std::vector<std::string> contradictions(const PipelineConfig& config) { return Judge(config).run(); }

std::vector<std::string> unusable_files(const PipelineConfig& config) {
  std::vector<std::string> found;
  const auto judge = [&](auto read) {
    try {
      read();
    } catch (const Error& e) { found.emplace_back(e.what()); }
  };
  if (config.run.compression == "zst") judge([] { need_zstd("run.compression = \"zst\""); });
  judge([&] { make_rules(config); });
  if (config.has("dedup") && config.dedup.near) judge([] { need_unicode("dedup.near"); });
  if (config.has("decontaminate")) judge([] { need_unicode("[decontaminate]"); });
  if (config.has("decontaminate")) judge([&] { decontaminate_identity(config, {}); });
  if (config.has("tokens")) judge([&] { DocumentEncoder(config.tokens, config.has_conversations()); });
  return found;
}

}  // namespace weft
