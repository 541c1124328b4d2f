// The character sets of the web and the names that pages have for them.
#pragma once
#include <span>
#include <string_view>

namespace weft {

enum class CharsetKind { kUtf8, kUtf16, kSingleByte, kMultiByte, kIso2022Jp, kUserDefined };

struct Charset {
  const char* name;       // WHATWG's, in lower case
  const char* converter;  // iconv's name; empty: none is needed
  CharsetKind kind;
  const char* labels;  // in lower case, with a space between them
};

inline constexpr std::string_view kHtmlSpaces = " \t\n\f\r";

std::span<const Charset> all_charsets();
// nullptr: the label is not known. White space around it and its case do not count.
const Charset* charset_named(std::string_view label);

// What the first bytes of a page say of its character set, by <meta> or an XML declaration; nullptr: nothing that is
// known. Sets `unknown` where they name one that is not known.       HTML, "prescan a byte stream", beyond 1024 bytes
// too
const Charset* charset_of_page(std::string_view bytes, bool& unknown);

}  // namespace weft
