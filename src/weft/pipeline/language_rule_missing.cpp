// Instead of language_rule.cpp, in a build without CLD2.
#include "weft/base/not_built.h"
#include "weft/pipeline/rule.h"

namespace weft {

std::string why_no_language(const std::string&) { return ""; }  // no list of them is here; the rule refuses all
std::unique_ptr<Rule> make_language_rule(const LanguageConfig&) {
  throw NotBuilt("[language]: what detects languages", "CLD2", "leave the section out");
}

}  // namespace weft
