#include "weft/apps/data_lines.h"

#include <iostream>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"

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

namespace fs = std::filesystem;

void require_replaceable(std::string_view option, const fs::path& file, bool again) {
  if (!is_name_taken(file)) return;
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored))
    throw ConfigError(fmt::format("{} {}: is {}, which is not replaced; name another file", option, file.string(),
                                  fs::is_directory(file, ignored) ? "a folder" : "no regular file"));
  if (!again && fs::file_size(file, ignored) > 0)
    throw ConfigError(fmt::format("{} {}: is there already; name another file, or add --again", option, file.string()));
}

void prepare_output(std::string_view option, const fs::path& file, bool again) {
  std::error_code error;
  if (fs::is_directory(file, error))
    throw ConfigError(fmt::format("{} {}: is a folder; name a file in it", option, file.string()));
  if (fs::exists(file, error) && !again)
    throw ConfigError(
        fmt::format("{} {}: is there already; choose another name, or --again to replace it", option, file.string()));
  const fs::path folder = file.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    fs::create_directories(folder, error);
    if (!error && !fs::is_directory(folder)) error = std::make_error_code(std::errc::not_a_directory);
    if (error)
      throw FileError(fmt::format("{} {}: the folder {} cannot be made: {}", option, file.string(), folder.string(),
                                  error.message()));
  }
  const DurableFile probe(file, kOwnName);  // that it can be created; removed again
}

}  // namespace weft
