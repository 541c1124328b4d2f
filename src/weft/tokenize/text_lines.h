// The lines of a tokenizer's text file.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace weft {

// Calls take(line, number) for each line, numbers from 1; line feeds, also with a carriage return before, belong to
// none. Throws FileError that begins with `source` and names the line that is not UTF-8.
void for_each_text_line(std::string_view text, const std::string& source,
                        const std::function<void(std::string_view line, int64_t number)>& take);

}  // namespace weft
