// The main text of a web page.
#pragma once
#include <string>
#include <string_view>

namespace weft {

// Paragraphs, headings, lists, tables and preformatted text, with an empty line between blocks; without scripts, forms,
// navigation, footers, asides, and blocks that are mostly links. UTF-8. `html` is UTF-8 too, whatever it says of
// itself: what decode_page() gives. Throws Error where the page is nested too deep to be a page. Throws NotBuilt in a
// build without libxml2.
std::string html_text(std::string_view html);
// Throws NotBuilt, beginning with `what`, where that cannot be done.
void need_html(std::string_view what);

}  // namespace weft
