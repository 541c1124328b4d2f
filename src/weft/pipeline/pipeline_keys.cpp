#include <algorithm>

#include "weft/pipeline/pipeline_config.h"

namespace weft {
namespace {

Allowed count(int64_t min, double max = kMostCount) { return {.min = double(min), .max = max}; }
Allowed anything() { return {}; }
Allowed up_to(double max) { return {.min = 0, .max = max}; }
Allowed share() { return up_to(1); }
Allowed below_one() { return {.min = 0, .max = 1, .below_max = true}; }
Allowed at_least(double min) { return {.min = min}; }
Allowed one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
Allowed needed(std::string example) { return {.example = std::move(example)}; }

// What the tokens stage alone looks at: the texts of documents do not depend on it.
bool is_of_tokens(const RecipeKey& key) { return key.name == "source.copies" || key.name == "source.weight"; }

void add_run(PipelineConfig& c, std::vector<RecipeKey>& keys) {
  keys.insert(
      keys.end(),
      {{"run.dir", &c.run.dir, needed("dir = \"data/books\""), "folder of the dataset, with one for each stage"},
       {"run.threads", &c.run.threads, count(0, 4096), "0: all cores; the result is the same for any number"},
       {"run.shard_mb", &c.run.shard_mb, count(1, 1024), "megabytes of rows that make a shard, the unit of work"},
       {"run.compression", &c.run.compression, one_of({"zst", "none"}), "of the shards between stages"},
       {"run.samples", &c.run.samples, count(0, 1000), "dropped documents shown for each reason"},
       {"read.max_row_mb", &c.read.max_row_mb, count(1, 1024), "longer rows are put aside"},
       {"read.max_ratio", &c.read.max_ratio, at_least(1), "a file that expands more is put aside from there on"}});
}

void add_simple_rules(PipelineConfig& c, std::vector<RecipeKey>& keys) {
  auto& g = c.gopher_quality;
  auto& r = c.gopher_repetition;
  keys.insert(
      keys.end(),
      {{"language.keep", &c.language.keep, anything(), "codes of languages, as \"en\""},
       {"language.min_share", &c.language.min_share, share(), "of the text that must be in one of them"},
       {"length.min_characters", &c.length.min_characters, count(0), "fewer are dropped"},
       {"length.max_characters", &c.length.max_characters, count(0), "more are dropped; 0: no limit"},
       {"length.min_words", &c.length.min_words, count(0), "fewer are dropped"},
       {"length.max_words", &c.length.max_words, count(0), "more are dropped; 0: no limit"},
       {"symbols.max_non_alphanumeric", &c.symbols.max_non_alphanumeric, share(), "share of the visible characters"},
       {"symbols.max_digits", &c.symbols.max_digits, share(), "share of the visible characters"},
       {"symbols.max_upper", &c.symbols.max_upper, share(), "share of the letters"},
       {"gopher_quality.min_words", &g.min_words, count(0), "words of a document"},
       {"gopher_quality.max_words", &g.max_words, count(0), "words of a document"},
       {"gopher_quality.min_mean_word", &g.min_mean_word, at_least(0), "characters of a word, in the mean"},
       {"gopher_quality.max_mean_word", &g.max_mean_word, at_least(0), "characters of a word, in the mean"},
       {"gopher_quality.max_symbol_ratio", &g.max_symbol_ratio, at_least(0),
        "number signs, and ellipses, for each word"},
       {"gopher_quality.max_bullet_lines", &g.max_bullet_lines, share(), "share of lines that begin with a bullet"},
       {"gopher_quality.max_ellipsis_lines", &g.max_ellipsis_lines, share(),
        "share of lines that end with an ellipsis"},
       {"gopher_quality.min_alphabetic_words", &g.min_alphabetic_words, share(), "share of words with a letter"},
       {"gopher_quality.min_stop_words", &g.min_stop_words, count(0, 8),
        "different ones of the, be, to, of, and, that, have, with"},
       {"gopher_repetition.lines", &r.lines, share(), "share of lines that stood before"},
       {"gopher_repetition.paragraphs", &r.paragraphs, share(), "share of paragraphs that stood before"},
       {"gopher_repetition.line_characters", &r.line_characters, share(), "share of the characters in such lines"},
       {"gopher_repetition.paragraph_characters", &r.paragraph_characters, share(), "and in such paragraphs"},
       {"gopher_repetition.top_ngrams", &r.top_ngrams, share(),
        "share of the characters in the most frequent sequence of 2, 3, ... words"},
       {"gopher_repetition.repeated_ngrams", &r.repeated_ngrams, share(),
        "share of the characters in sequences of 5, 6, ... words that stood before"}});
}

void add_other_rules(PipelineConfig& c, std::vector<RecipeKey>& keys) {
  keys.insert(
      keys.end(),
      {{"c4.min_sentences", &c.c4.min_sentences, count(0), "of the lines that are kept"},
       {"c4.min_words_per_line", &c.c4.min_words_per_line, count(0), "shorter lines are taken out"},
       {"c4.lines_end_in_punctuation", &c.c4.lines_end_in_punctuation, anything(), "other lines are taken out"},
       {"c4.drop_javascript_lines", &c.c4.drop_javascript_lines, anything(), "lines with that word are taken out"},
       {"c4.drop_policy_lines", &c.c4.drop_policy_lines, anything(),
        "lines about cookies and terms of use are taken out"},
       {"c4.drop_lorem_ipsum", &c.c4.drop_lorem_ipsum, anything(), "documents with these words are dropped"},
       {"c4.drop_curly_brackets", &c.c4.drop_curly_brackets, anything(), "documents with { are dropped"},
       {"bad_words.file", &c.bad_words.file, needed("file = \"bad_words.txt\""), "a word or phrase a line"},
       {"bad_words.max_hits", &c.bad_words.max_hits, count(0), "documents with more are dropped"},
       {"perplexity.model", &c.perplexity.model, needed("model = \"books.ngram\""), "made by weft data train-ngram"},
       {"perplexity.min", &c.perplexity.min, at_least(0), "documents below are dropped: boilerplate"},
       {"perplexity.max", &c.perplexity.max, at_least(0), "documents above are dropped; 0: no limit"},
       {"pii.emails", &c.pii.emails, anything(), "become |||EMAIL_ADDRESS|||"},
       {"pii.phones", &c.pii.phones, anything(),
        "numbers of ten digits, as in North America, become |||PHONE_NUMBER|||"},
       {"pii.international_phones", &c.pii.international_phones, anything(), "+ and a country's code, likewise"},
       {"pii.ips", &c.pii.ips, anything(), "IPv4 addresses of one host become |||IP_ADDRESS|||"},
       {"pii.ipv6", &c.pii.ipv6, anything(), "IPv6 addresses, likewise"},
       {"pii.ibans", &c.pii.ibans, anything(), "bank accounts with a right check sum become |||IBAN|||"},
       {"pii.cards", &c.pii.cards, anything(), "card numbers with a right check digit become |||CARD_NUMBER|||"},
       {"pii.ssns", &c.pii.ssns, anything(), "US social security numbers become |||SOCIAL_SECURITY_NUMBER|||"},
       {"pii.api_keys", &c.pii.api_keys, anything(),
        "keys of well-known providers and web tokens become |||API_KEY|||"},
       {"pii.private_keys", &c.pii.private_keys, anything(), "blocks of private keys become |||PRIVATE_KEY|||"},
       {"pii.mask", &c.pii.mask, anything(), "what is put in their place; {} stands for the kind"}});
}

void add_later_stages(PipelineConfig& c, std::vector<RecipeKey>& keys) {
  keys.insert(
      keys.end(),
      {{"dedup.documents", &c.dedup.documents, anything(), "equal texts: the first is kept"},
       {"dedup.urls", &c.dedup.urls, anything(), "URLs of the same page: the first is kept"},
       {"dedup.lines", &c.dedup.lines, one_of({"off", "keep_first", "keep_none"}),
        "equal lines, of two documents or of one: all but the first, or all, are taken out"},
       {"dedup.near", &c.dedup.near, anything(), "similar texts, by MinHash: the first is kept"},
       {"dedup.ngram", &c.dedup.ngram, count(1, 100), "words of a shingle"},
       {"dedup.bands", &c.dedup.bands, count(1, 1000), "texts that agree in all rows of a band are compared"},
       {"dedup.rows", &c.dedup.rows, count(1, 1000), "hashes of a band"},
       {"dedup.jaccard", &c.dedup.jaccard, share(), "shingles that two texts share, of all that they have"},
       {"decontaminate.files", &c.decontaminate.files, needed("files = [\"eval/*.jsonl\"]"),
        "what evaluation is done with: all texts in JSONL, whole text files"},
       {"decontaminate.ngram", &c.decontaminate.ngram, count(1, 100), "words of a sequence"},
       {"decontaminate.min_words", &c.decontaminate.min_words, count(1, 100),
        "evaluation texts shorter than a sequence are looked for whole, if they have so many words"},
       {"decontaminate.max_hits", &c.decontaminate.max_hits, count(0), "documents that share more of them are dropped"},
       {"tokens.tokenizer", &c.tokens.tokenizer, anything(), "byte, or a tokenizer's file or folder"},
       {"tokens.chat_template", &c.tokens.chat_template, anything(),
        "of conversations: a template's file, or one by name: chatml, llama-3, mistral, gemma, zephyr, alpaca; empty: "
        "that of the tokenizer's folder"},
       {"tokens.template_date", &c.tokens.template_date, anything(),
        "what chat templates take for today, so that the result does not depend on the day"},
       {"tokens.valid_fraction", &c.tokens.valid_fraction, below_one(),
        "of the documents, chosen by the hash of their texts, is held out"},
       {"tokens.shard_mtokens", &c.tokens.shard_mtokens, count(1, 1 << 20), "millions of tokens in a token file"}});
}

}  // namespace

bool PipelineConfig::has(const std::string& section) const {
  return std::find(sections.begin(), sections.end(), section) != sections.end();
}

bool PipelineConfig::has_conversations() const {
  return std::any_of(sources.begin(), sources.end(), [](const SourceConfig& s) { return s.has_conversations(); });
}

bool PipelineConfig::has_weights() const {
  return std::any_of(sources.begin(), sources.end(), [](const SourceConfig& s) { return s.weight.has_value(); });
}

std::vector<RecipeKey> pipeline_keys(PipelineConfig& config) {
  std::vector<RecipeKey> keys;
  add_run(config, keys);
  add_simple_rules(config, keys);
  add_other_rules(config, keys);
  add_later_stages(config, keys);
  return keys;
}

std::vector<RecipeKey> source_keys(SourceConfig& s) {
  return {
      {"source.name", &s.name, needed("name = \"books\""), "letters, digits, - and _"},
      {"source.files", &s.files, needed("files = [\"books/*.jsonl.zst\"]"), "files, folders and patterns"},
      {"source.format", &s.format, one_of({"auto", "text", "jsonl", "parquet", "csv", "warc", "html"}),
       "auto: by the names"},
      {"source.separator", &s.separator, anything(),
       "stands between the documents of a text; empty: a file is a document"},
      {"source.text_key", &s.text_key, anything(),
       "JSONL's key or CSV's column of the text; or \"{question}\\n{answer}\""},
      {"source.messages_key", &s.messages_key, anything(),
       "JSONL's key of a conversation's messages; empty: rows are texts"},
      {"source.prompt_key", &s.prompt_key, anything(),
       "key or column of what the user says, in a conversation of two messages; or \"{instruction}\\n\\n{input?}\""},
      {"source.completion_key", &s.completion_key, anything(),
       "of what the assistant answers: that alone is trained on"},
      {"source.url_key", &s.url_key, anything(), "JSONL's key or CSV's column of the URL, where there is one"},
      {"source.meta_keys", &s.meta_keys, anything(), "JSONL's keys or CSV's columns that go along"},
      {"source.invalid_text", &s.invalid_text, one_of({"aside", "repair"}),
       "text that is not UTF-8, or has NUL bytes: the row is put aside, or they become U+FFFD"},
      {"source.licence", &s.licence, anything(), "of its texts, as \"cc-by-4.0\"; for model cards and policies"},
      {"source.copies", &s.copies, up_to(1000), "of each document; 2.5: half of them a third time"},
      {"source.weight", &s.weight, up_to(1e9),
       "share of the source in the training samples, of the sum of all; of all sources, or of none"}};
}

nlohmann::json parameters_of(const PipelineConfig& config, const std::vector<std::string>& sections) {
  PipelineConfig copy = config;
  nlohmann::json values = nlohmann::json::object();
  const auto wanted = [&](const std::string& s) {
    return std::find(sections.begin(), sections.end(), s) != sections.end();
  };
  for (const RecipeKey& key : pipeline_keys(copy))
    if (wanted(key.section())) values[key.name] = value_of(key);
  if (wanted("source")) {
    for (SourceConfig& source : copy.sources) {
      nlohmann::json one;
      for (const RecipeKey& key : source_keys(source))
        if (!is_of_tokens(key)) one[key.last()] = value_of(key);
      values["source"].push_back(one);
    }
  }
  return values;
}

nlohmann::json with_defaults(nlohmann::json made, const nlohmann::json& mine) {
  if (!made.is_object()) return made;
  PipelineConfig defaults;
  for (const RecipeKey& key : pipeline_keys(defaults))
    if (mine.contains(key.name) && !made.contains(key.name)) made[key.name] = value_of(key);
  if (!made.contains("source")) return made;
  SourceConfig source;
  const std::vector<RecipeKey> keys = source_keys(source);
  for (auto& one : made["source"])
    for (const RecipeKey& key : keys)
      if (!is_of_tokens(key) && one.is_object() && !one.contains(key.last())) one[key.last()] = value_of(key);
  return made;
}

}  // namespace weft
