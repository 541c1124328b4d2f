// Instead of pattern.cpp, in a build without PCRE2.
#include "weft/base/json.h"
#include "weft/base/not_built.h"
#include "weft/tokenize/pattern.h"

namespace weft {

struct Pattern::Code {};
struct PatternSpace::State {};

PatternSpace::PatternSpace() = default;
PatternSpace::~PatternSpace() = default;
PatternSpace::PatternSpace(PatternSpace&&) noexcept = default;
PatternSpace& PatternSpace::operator=(PatternSpace&&) noexcept = default;

Pattern::Pattern(std::string_view expression, const std::string& source) {
  throw NotBuilt(fmt::format("{}: what runs regular expressions, as {},", source, in_quotes(expression)), "PCRE2");
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::find(std::string_view, size_t, PatternSpace&, Span&) const { return false; }  // there is no pattern

}  // namespace weft
