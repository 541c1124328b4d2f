// From the bytes of a page to UTF-8, in the order of the WHATWG's standards (encoding.spec.whatwg.org and HTML, section
// 13.2.3): byte order mark, HTTP header, the page's own <meta>, guess.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct Decoded {
  std::string text;                           // UTF-8 without NUL bytes
  std::string charset;                        // what the bytes were taken for, by its WHATWG name: "gb18030"
  int64_t replaced = 0;                       // U+FFFD that stand where bytes fit no character, or where NULs stood
  size_t first_bad = std::string_view::npos;  // where the first of these bytes is, as far as that is known
  bool unknown_label = false;                 // the header or the page names a character set that is not known
  bool guessed = false;                       // neither names a known one, and it is not UTF-8
};

// A page of HTML. `said`: the label that the HTTP header has; may be empty. A label for ISO-8859-1, which servers give
// unasked, is not believed of what is UTF-8. Without any label, what is mostly UTF-8 is that, else windows-1252.
// Throws Error where the C library lacks the converter (need_charsets).
Decoded decode_page(std::string_view bytes, std::string_view said);
// A plain text: the same without <meta>; without a label that is known, it is UTF-8.
Decoded decode_text(std::string_view bytes, std::string_view said);

// What is to be UTF-8, whatever it begins with.
Decoded repair_utf8(std::string_view bytes);

// The label after "charset=" in a Content-Type or in the content of a <meta>, as it stands there; empty: there is none.
std::string charset_label_in(std::string_view content);

// Throws ConfigError, which begins with `what`, names what is missing and says what to install, where the C library
// lacks converters: on some systems they are in a package of their own.
void need_charsets(std::string_view what);
// Which of these iconv names the C library cannot convert to UTF-8.
std::vector<std::string> missing_converters(const std::vector<std::string>& names);

}  // namespace weft
