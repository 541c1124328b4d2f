// Splits a piece at matches, and treats the matches as asked.
#pragma once
#include "weft/tokenize/component.h"
#include "weft/tokenize/pre_tokenizers.h"

namespace weft {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
// Throws FileError. `fallback`: where the field is absent.
SplitBehavior read_behavior(const Component& c, std::optional<SplitBehavior> fallback = {});

// Lists the matches in a text, in order; none is empty.
using Matcher = std::function<void(std::string_view text, PatternSpace& space, std::vector<Span>& matches)>;
Matcher match_pattern(Pattern pattern);
Matcher match_text(std::string what);
Matcher match_splitter(Splitter splitter);
Matcher match_characters(bool (*is_match)(char32_t));  // each alone

// `invert`: what does not match is the match.
PreTokenizer split_at(Matcher matcher, SplitBehavior behavior, bool invert = false);

}  // namespace weft
