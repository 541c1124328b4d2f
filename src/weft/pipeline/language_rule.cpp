// The rule for languages, by CLD2.
#include <cstdio>  // which the next header takes for granted

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>

#include <algorithm>
#include <climits>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/pipeline/language_codes.h"
#include "weft/pipeline/rule.h"

namespace weft {
namespace {

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
    if (kept < 100 * c_.min_share) return Drop{"language.min_share", fmt::format("{}, {} %", first, percent[0])};
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
