// Instead of html_text.cpp, in a build without libxml2.
#include "weft/base/not_built.h"
#include "weft/pipeline/html_text.h"

namespace weft {

void need_html(std::string_view what) {
  throw NotBuilt(fmt::format("{}: what takes the text out of web pages", what), "libxml2");
}
std::string html_text(std::string_view) {
  need_html("HTML");
  return {};
}

}  // namespace weft
