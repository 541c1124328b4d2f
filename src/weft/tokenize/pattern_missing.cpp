// Instead of pattern.cpp, in a build without PCRE2.
#include "weft/base/json.h"
#include "weft/base/not_built.h"
#include "weft/tokenize/pattern.h"

namespace weft {

struct Pattern::Code {};
struct Pattern::Search::State {};

Pattern::Pattern(std::string_view expression, const std::string& source) {
  throw NotBuilt(fmt::format("{}: what runs regular expressions, as {},", source, in_quotes(expression)), "PCRE2");
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

Pattern::Search::Search(const Pattern& pattern, std::string_view text) : pattern_(pattern), text_(text) {}
Pattern::Search::~Search() = default;
bool Pattern::Search::next(size_t, Span&) { return false; }  // there is no pattern to search for

}  // namespace weft
