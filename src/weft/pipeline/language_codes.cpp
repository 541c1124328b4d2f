#include "weft/pipeline/language_codes.h"

#include <algorithm>

#include "weft/base/ascii.h"

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

}  // namespace

std::string detector_code(std::string_view code) {
  std::string wanted = lower_ascii(code);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  const std::string language = wanted.substr(0, wanted.find('-'));
  for (const std::string& one : {wanted, language})
    for (const auto& [other, known] : kCodes)
      if (one == other) return std::string(known);
  return language;
}

}  // namespace weft
