#include "weft/tokenize/text_lines.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/utf8.h"

namespace weft {

void for_each_text_line(std::string_view text, const std::string& source,
                        const std::function<void(std::string_view line, int64_t number)>& take) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (utf8_error(line) != std::string_view::npos)
      throw FileError(fmt::format("{}: line {}: not UTF-8 text", source, number));
    take(line, number);
  }
}

}  // namespace weft
