// Rules that count characters and words.
#include <algorithm>

#include "weft/base/error.h"
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
  explicit Symbols(const SymbolsConfig& config) : c_(config), table_(make_character_table("[symbols]")) {}
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

}  // namespace

std::unique_ptr<Rule> make_length_rule(const LengthConfig& config) { return std::make_unique<Length>(config); }
std::unique_ptr<Rule> make_symbols_rule(const SymbolsConfig& config) { return std::make_unique<Symbols>(config); }

}  // namespace weft
