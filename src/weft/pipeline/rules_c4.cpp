// The rules of C4, and those with lists of words and of personal data.
#include <algorithm>
#include <unordered_map>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"
#include "weft/pipeline/rule.h"
#include "weft/pipeline/words.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

bool has_any(const std::string& text, std::initializer_list<std::string_view> phrases) {
  return std::any_of(phrases.begin(), phrases.end(),
                     [&](std::string_view phrase) { return text.find(phrase) != std::string::npos; });
}

bool ends_a_sentence(std::string_view line) {
  if (line.ends_with("...") || line.ends_with("\u2026")) return false;
  constexpr std::string_view kEnds[] = {".", "!", "?", "\"", "\u201d"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](std::string_view end) { return line.ends_with(end); });
}

// Places where a full stop, exclamation or question mark is followed by a space or the end.
int64_t count_sentences(std::string_view line) {
  int64_t n = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '.' && line[i] != '!' && line[i] != '?') continue;
    size_t next = i + 1;
    while (next < line.size() && (line[next] == '"' || line[next] == ')' || line[next] == '\'')) ++next;
    const bool more = next < line.size() && (line[next] == '.' || line[next] == '!' || line[next] == '?');
    if (!more && (next >= line.size() || line[next] == ' ' || line.substr(next).starts_with("\u201d"))) ++n;
  }
  return std::max<int64_t>(n, 1);
}

class C4 final : public Rule {
 public:
  explicit C4(const C4Config& config) : c_(config) {}

  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>& changes) const override {
    if (c_.drop_curly_brackets && d.text.find('{') != std::string::npos) return Drop{"c4.drop_curly_brackets", ""};
    if (c_.drop_lorem_ipsum && lower_ascii(d.text).find("lorem ipsum") != std::string::npos)
      return Drop{"c4.drop_lorem_ipsum", ""};
    std::string kept;
    int64_t sentences = 0;
    for (std::string_view line : split_lines(d.text)) {
      if (const char* why = why_not(line)) {
        ++changes[why];
        continue;
      }
      sentences += count_sentences(line);
      if (!kept.empty()) kept += '\n';
      kept += line;
    }
    if (sentences < c_.min_sentences) return Drop{"c4.min_sentences", fmt::format("{} sentences", sentences)};
    if (kept.empty()) return Drop{"c4.empty", ""};
    d.text = std::move(kept);
    return {};
  }

 private:
  const char* why_not(std::string_view line) const {
    if (c_.lines_end_in_punctuation && !ends_a_sentence(line)) return "c4.lines_end_in_punctuation";
    if (int64_t(split_words(line).size()) < c_.min_words_per_line) return "c4.min_words_per_line";
    const std::string text = lower_ascii(line);
    if (c_.drop_javascript_lines && text.find("javascript") != std::string::npos) return "c4.drop_javascript_lines";
    if (c_.drop_policy_lines && has_any(text, {"terms of use", "privacy policy", "cookie policy", "uses cookies",
                                               "use of cookies", "use cookies"}))
      return "c4.drop_policy_lines";
    return nullptr;
  }

  C4Config c_;
};

uint64_t hash_with(uint64_t hash, char byte) { return (hash ^ uint8_t(byte)) * 0x100000001b3u; }  // FNV-1a

// Hashes of the words between what is neither letter nor digit, in lower case.
std::vector<uint64_t> word_hashes(std::string_view text) {
  constexpr uint64_t kNoWord = 0xcbf29ce484222325u;
  std::vector<uint64_t> hashes;
  std::string lower;
  uint64_t hash = kNoWord;
  const auto end_word = [&] {
    if (hash != kNoWord) hashes.push_back(hash);
    hash = kNoWord;
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (uint8_t(c) < 0x80) {
      ++at;
      if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')
        hash = hash_with(hash, c);
      else if (c >= 'A' && c <= 'Z')
        hash = hash_with(hash, lower_ascii(c));
      else
        end_word();
      continue;
    }
    const Character character = first_character(text.substr(at));
    at += character.bytes;
    if (!is_word_character(character.code)) {
      end_word();
      continue;
    }
    lower.clear();
    append_lower(lower, character.code);
    for (const char byte : lower) hash = hash_with(hash, byte);
  }
  end_word();
  return hashes;
}

// Extends the hash of a phrase by one word; an empty phrase has 0.
uint64_t phrase_hash(uint64_t before, uint64_t word) { return (before ^ word) * 0x9e3779b97f4a7c15u; }

class BadWords final : public Rule {
 public:
  explicit BadWords(const BadWordsConfig& config) : c_(config) {
    need_unicode("[bad_words]");
    const MappedFile file(c_.file);
    for (std::string_view line : split_lines(file.text())) {
      const std::vector<uint64_t> words = word_hashes(line);
      uint64_t phrase = 0;
      for (const uint64_t word : words) phrase = phrase_hash(phrase, word);
      if (words.empty()) {
        signs_.emplace_back(line);  // an emoji
      } else {
        phrases_.emplace(phrase, line);
        may_begin_[place_of(words[0])] = true;
      }
      longest_ = std::max(longest_, words.size());
    }
    if (phrases_.empty() && signs_.empty()) throw FileError(c_.file + ": holds no word");
  }

  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>&) const override {
    const std::vector<uint64_t> words = word_hashes(d.text);
    std::vector<const std::string*> hits;
    for (size_t i = 0; i < words.size(); ++i) {
      if (!may_begin_[place_of(words[i])]) continue;
      uint64_t phrase = 0;
      for (size_t k = i; k < std::min(i + longest_, words.size()); ++k)
        if (const auto found = phrases_.find(phrase = phrase_hash(phrase, words[k])); found != phrases_.end())
          hits.push_back(&found->second);
    }
    for (const std::string& sign : signs_)
      if (d.text.find(sign) != std::string::npos) hits.push_back(&sign);
    if (int64_t(hits.size()) <= c_.max_hits) return {};
    return Drop{"bad_words", fmt::format("{} hits: {}", hits.size(), distinct(hits))};
  }

 private:
  static size_t place_of(uint64_t word) { return size_t(word >> 48); }
  // The first few, in the order of the text.
  static std::string distinct(const std::vector<const std::string*>& hits) {
    constexpr size_t kMost = 5;
    std::vector<const std::string*> seen;
    std::string text;
    for (const std::string* hit : hits) {
      if (std::find(seen.begin(), seen.end(), hit) != seen.end()) continue;
      if (seen.size() == kMost) return text + ", ...";
      seen.push_back(hit);
      text += (text.empty() ? "" : ", ") + in_quotes(*hit);
    }
    return text;
  }

  BadWordsConfig c_;
  std::unordered_map<uint64_t, std::string> phrases_;         // as the file has them
  std::vector<bool> may_begin_ = std::vector<bool>(1 << 16);  // so that most words cost one look
  std::vector<std::string> signs_;
  size_t longest_ = 1;
};

}  // namespace

std::unique_ptr<Rule> make_c4_rule(const C4Config& config) { return std::make_unique<C4>(config); }
std::unique_ptr<Rule> make_bad_words_rule(const BadWordsConfig& config) { return std::make_unique<BadWords>(config); }

}  // namespace weft
