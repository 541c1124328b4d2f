// Rules that count characters and words, and the one for languages.
#include <cstdio>  // which the next header takes for granted

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>

#include <algorithm>
#include <cctype>
#include <climits>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/pipeline/language_codes.h"
#include "weft/pipeline/rule.h"
#include "weft/pipeline/words.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

std::optional<Drop> drop(const char* rule, const char* part, const std::string& detail) {
  return Drop{fmt::format("{}.{}", rule, part), detail};
}

class Length final : public Rule {
 public:
  explicit Length(const LengthConfig& config) : c_(config) {}
  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>&) const override {
    const int64_t characters = count_characters(d.text);
    const std::string detail = fmt::format("{} characters", characters);
    if (characters < c_.min_characters) return drop("length", "min_characters", detail);
    if (c_.max_characters > 0 && characters > c_.max_characters) return drop("length", "max_characters", detail);
    if (c_.min_words == 0 && c_.max_words == 0) return {};
    const auto words = int64_t(split_words(d.text).size());
    if (words < c_.min_words) return drop("length", "min_words", fmt::format("{} words", words));
    if (c_.max_words > 0 && words > c_.max_words) return drop("length", "max_words", fmt::format("{} words", words));
    return {};
  }

 private:
  LengthConfig c_;
};

class Symbols final : public Rule {
 public:
  explicit Symbols(const SymbolsConfig& config) : c_(config), table_(make_character_table()) {}
  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>&) const override {
    int64_t visible = 0, letters = 0, digits = 0, upper = 0, marks = 0;
    std::string_view rest = d.text;
    while (!rest.empty()) {
      const Character c = first_character(rest);
      rest.remove_prefix(c.bytes);
      const uint8_t kind = table_->of(c.code);
      if (kind & CharacterTable::kSpace) continue;
      ++visible;
      const bool letter = kind & CharacterTable::kLetter;
      letters += letter;
      upper += letter && (kind & CharacterTable::kUpperLike) && !(kind & CharacterTable::kLowerLike);
      digits += (kind & CharacterTable::kNumber) != 0;
      marks += !letter && !(kind & CharacterTable::kNumber) && is_mark(c.code);
    }
    if (visible == 0) return {};
    const auto share = [](int64_t part, int64_t whole) { return whole == 0 ? 0.0 : double(part) / double(whole); };
    const double symbols = share(visible - letters - digits - marks, visible);
    if (symbols > c_.max_non_alphanumeric)
      return drop("symbols", "max_non_alphanumeric", fmt::format("{:.3f}", symbols));
    if (share(digits, visible) > c_.max_digits)
      return drop("symbols", "max_digits", fmt::format("{:.3f}", share(digits, visible)));
    if (share(upper, letters) > c_.max_upper)
      return drop("symbols", "max_upper", fmt::format("{:.3f}", share(upper, letters)));
    return {};
  }

 private:
  SymbolsConfig c_;
  std::shared_ptr<const CharacterTable> table_;
};

// Compact Language Detector 2: naive Bayes on sequences of four characters, some 80 languages.
class LanguageRule final : public Rule {
 public:
  explicit LanguageRule(const LanguageConfig& config) : c_(config) {}
  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>&) const override {
    CLD2::Language languages[3];
    int percent[3], bytes = 0;
    bool reliable = false;
    const int size = int(std::min<size_t>(d.text.size(), INT_MAX));
    CLD2::DetectLanguageSummary(d.text.data(), size, true, languages, percent, &bytes, &reliable);
    const std::string first = CLD2::LanguageCode(languages[0]);
    int kept = 0;
    for (int i = 0; i < 3; ++i)
      if (is_kept(CLD2::LanguageCode(languages[i]))) kept += percent[i];
    if (kept < 100 * c_.min_share) return drop("language", "min_share", fmt::format("{}, {} %", first, percent[0]));
    d.meta["language"] = first;
    return {};
  }

 private:
  // "zh" keeps zh-Hant too.
  bool is_kept(std::string_view code) const {
    return std::any_of(c_.keep.begin(), c_.keep.end(),
                       [&](const std::string& k) { return code == k || code.substr(0, code.find('-')) == k; });
  }
  LanguageConfig c_;
};

}  // namespace

std::unique_ptr<Rule> make_length_rule(const LengthConfig& config) { return std::make_unique<Length>(config); }
std::unique_ptr<Rule> make_symbols_rule(const SymbolsConfig& config) { return std::make_unique<Symbols>(config); }
std::string why_no_language(const std::string& code) {
  const auto same_letters = [](char a, char b) { return lower_ascii(a) == lower_ascii(b); };
  const std::string likely = detector_code(code);
  std::string meant;
  for (int i = 0; i < CLD2::NUM_LANGUAGES; ++i) {
    const auto language = CLD2::Language(i);
    const std::string_view known = CLD2::LanguageCode(language), name = CLD2::LanguageName(language);
    // Scripts without a language, jokes, and what stands for none.
    if (known.empty() || name.starts_with("X_") || known == "un" || known == "xxx") continue;
    if (code == known || code == known.substr(0, known.find('-'))) return "";
    if (std::equal(code.begin(), code.end(), name.begin(), name.end(), same_letters)) meant = known;
    if (meant.empty() && likely == known) meant = known;
  }
  return fmt::format("{} is no code of a language{}", in_quotes(code),
                     meant.empty() ? ", as \"en\" or \"zh-Hant\"; docs/formats/pipeline.md has them"
                                   : "; did you mean " + in_quotes(meant) + "?");
}
std::unique_ptr<Rule> make_language_rule(const LanguageConfig& config) {
  return std::make_unique<LanguageRule>(config);
}

}  // namespace weft
