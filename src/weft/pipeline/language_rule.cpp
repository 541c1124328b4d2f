// The rule for languages, by CLD2.
#include <cstdio>  // which the next header takes for granted

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>

#include <algorithm>
#include <climits>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/pipeline/rule.h"

namespace weft {
namespace {

// Others' code, the detector's.
constexpr std::string_view kCodes[][2] = {
    {"he", "iw"},           {"nb", "no"},         {"fil", "tl"},        {"jv", "jw"},         {"mo", "ro"},
    {"in", "id"},           {"ji", "yi"},         {"zh-hans", "zh"},    {"zh-cn", "zh"},      {"zh-sg", "zh"},
    {"zh-hant", "zh-Hant"}, {"zh-tw", "zh-Hant"}, {"zh-hk", "zh-Hant"}, {"zh-mo", "zh-Hant"}, {"zho-hant", "zh-Hant"},
    {"yue", "zh-Hant"},     {"zho", "zh"},        {"chi", "zh"},        {"cmn", "zh"},        {"afr", "af"},
    {"alb", "sq"},          {"als", "sq"},        {"ara", "ar"},        {"arb", "ar"},        {"arm", "hy"},
    {"aze", "az"},          {"azj", "az"},        {"baq", "eu"},        {"bel", "be"},        {"ben", "bn"},
    {"bul", "bg"},          {"cat", "ca"},        {"ces", "cs"},        {"cym", "cy"},        {"cze", "cs"},
    {"dan", "da"},          {"deu", "de"},        {"div", "dv"},        {"dut", "nl"},        {"ell", "el"},
    {"eng", "en"},          {"est", "et"},        {"eus", "eu"},        {"fas", "fa"},        {"fin", "fi"},
    {"fra", "fr"},          {"fre", "fr"},        {"geo", "ka"},        {"ger", "de"},        {"gla", "gd"},
    {"gle", "ga"},          {"glg", "gl"},        {"gre", "el"},        {"guj", "gu"},        {"hat", "ht"},
    {"heb", "iw"},          {"hin", "hi"},        {"hrv", "hr"},        {"hun", "hu"},        {"hye", "hy"},
    {"ice", "is"},          {"iku", "iu"},        {"ind", "id"},        {"isl", "is"},        {"ita", "it"},
    {"jav", "jw"},          {"jpn", "ja"},        {"kan", "kn"},        {"kat", "ka"},        {"khm", "km"},
    {"kin", "rw"},          {"kor", "ko"},        {"lao", "lo"},        {"lav", "lv"},        {"lit", "lt"},
    {"lug", "lg"},          {"lvs", "lv"},        {"mac", "mk"},        {"mal", "ml"},        {"mar", "mr"},
    {"may", "ms"},          {"mkd", "mk"},        {"mlt", "mt"},        {"msa", "ms"},        {"nep", "ne"},
    {"nld", "nl"},          {"nno", "nn"},        {"nob", "no"},        {"nor", "no"},        {"npi", "ne"},
    {"ori", "or"},          {"ory", "or"},        {"pan", "pa"},        {"per", "fa"},        {"pes", "fa"},
    {"pol", "pl"},          {"por", "pt"},        {"ron", "ro"},        {"rum", "ro"},        {"rus", "ru"},
    {"sin", "si"},          {"slk", "sk"},        {"slo", "sk"},        {"slv", "sl"},        {"spa", "es"},
    {"sqi", "sq"},          {"srp", "sr"},        {"swa", "sw"},        {"swe", "sv"},        {"swh", "sw"},
    {"tam", "ta"},          {"tel", "te"},        {"tgl", "tl"},        {"tha", "th"},        {"tur", "tr"},
    {"ukr", "uk"},          {"urd", "ur"},        {"vie", "vi"},        {"wel", "cy"},        {"ydd", "yi"},
    {"yid", "yi"},          {"zsm", "ms"}};

// The detector's code for one of ISO 639-1, -2 or -3, of BCP 47 or of FLORES: "iw" for "he", "heb" and "heb_Hebr", "en"
// for "en-US", "zh-Hant" for "zh-TW". What may be one already is handed back without its script and region. In any
// case.
std::string detector_code(std::string_view code) {
  std::string wanted = lower_ascii(code);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  const std::string language = wanted.substr(0, wanted.find('-'));
  for (const std::string& one : {wanted, language})
    for (const auto& [other, known] : kCodes)
      if (one == other) return std::string(known);
  return language;
}

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
