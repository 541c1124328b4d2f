// The names by which llama.cpp knows how a tokenizer splits text.
#include <algorithm>

#include "weft/tokenize/gguf_vocabulary.h"
#include "weft/tokenize/splitter.h"

namespace weft {
namespace {

using Names = std::vector<std::string_view>;

// Splits as qwen2 does, but its tokenizer.json has no NFC.
constexpr std::string_view kQwenUncomposed = "stablelm2";

// Splits that are known by heart; the first name is the one that is written.
struct KnownSplit {
  Names names;
  std::string_view rules;  // Splitter::rules_named
  bool whole_first;
};
const std::vector<KnownSplit>& known_splits() {
  static const std::vector<KnownSplit> all{{{"gpt-2", "mpt", "olmo", "jais", "phi-2"}, "r50k", false},
                                           {{"llama-bpe", "llama3", "llama-v3", "falcon3"}, "llama3", true},
                                           {{"dbrx", "smaug-bpe"}, "cl100k", false},
                                           {{"qwen2", kQwenUncomposed, "deepseek-r1-qwen"}, "qwen2", false},
                                           {{"gpt-4o", "llama4"}, "o200k", false}};
  return all;
}

// Splits of several expressions.
struct ListedSplit {
  Names names;
  std::vector<std::string> expressions;
};
const std::vector<ListedSplit>& listed_splits() {
  const std::string gpt2(Splitter::expression_of(*Splitter::rules_named("r50k")));
  static const std::vector<ListedSplit> all{
      {{"deepseek-v3"},
       {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
        "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
      {{"deepseek-coder"}, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell"}, {"\\p{N}", gpt2}}};
  return all;
}

// With ends of lines as escapes, as some files have them and others do not.
std::vector<std::string> spelt(std::vector<std::string> expressions) {
  for (std::string& e : expressions)
    for (const auto& [end, escape] : {std::pair{'\r', "\\r"}, std::pair{'\n', "\\n"}})
      for (size_t at = 0; (at = e.find(end, at)) != e.npos; at += 2) e.replace(at, 1, escape);
  return expressions;
}

bool is_among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool same_rules(const Splitter::Rules& a, const Splitter::Rules& b) {
  return a.family == b.family && a.digits == b.digits;
}

}  // namespace

std::optional<GgufSplit> gguf_split(const std::string& pre) {
  for (const KnownSplit& k : known_splits())
    if (is_among(k.names, pre))
      return GgufSplit{{std::string(Splitter::expression_of(*Splitter::rules_named(k.rules)))},
                       k.whole_first,
                       k.names[0] == "qwen2" && pre != kQwenUncomposed};
  for (const ListedSplit& l : listed_splits())
    if (is_among(l.names, pre)) return GgufSplit{l.expressions, false, false};
  return {};
}

std::string gguf_pre_of(const GgufSplit& split) {
  for (const ListedSplit& l : listed_splits())
    if (l.expressions == spelt(split.expressions) && !split.whole_first)
      return std::string(split.composes ? "" : l.names[0]);
  if (split.expressions.size() != 1) return "";
  const auto rules = Splitter::rules_of(split.expressions[0]);
  for (const KnownSplit& k : known_splits()) {
    if (!rules || !same_rules(*rules, *Splitter::rules_named(k.rules))) continue;
    if (k.rules == "qwen2") return std::string(split.composes ? k.names[0] : kQwenUncomposed);
    if (k.whole_first == split.whole_first) return std::string(split.composes ? "" : k.names[0]);
  }
  return "";
}

}  // namespace weft
