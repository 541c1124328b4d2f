#include "weft/apps/data_lines.h"

#include <iostream>

#include "weft/base/error.h"

namespace weft {

void for_each_line(const std::function<void(const std::string& line, const std::string& where)>& take) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    const std::string where = fmt::format("standard input: line {}", number);
    if (line.find_first_not_of(" \t\r") == std::string::npos) throw FileError(fmt::format("{}: is empty", where));
    take(line, where);
  }
  if (std::cin.bad()) throw FileError("standard input: cannot be read");
}

}  // namespace weft
