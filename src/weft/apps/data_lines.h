// Standard input line by line, and lists of ids as text, for `weft data ...`.
#pragma once
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// Calls take(line, "standard input: line 3") for each line. Throws FileError for an empty one.
void for_each_line(const std::function<void(const std::string& line, const std::string& where)>& take);

// [1,2,3]
template <class T>
std::string as_list(std::span<const T> numbers) {
  std::string text = "[";
  for (const T& n : numbers) text += (text.size() > 1 ? "," : "") + std::to_string(n);
  return text + "]";
}

// Where a command will write a file, judged before the work that it is the result of.

// Throws ConfigError, which names `option`, where what the file would replace is no regular file, or is one with
// something in it and not `again`.
void require_replaceable(std::string_view option, const std::filesystem::path& file, bool again);

// Makes the folder of `file`, which `option` names, where there is none. Throws ConfigError where there is such a file
// and not `again`, or where a folder is in its place; FileError where it could not be written. Leaves nothing there.
void prepare_output(std::string_view option, const std::filesystem::path& file, bool again);

}  // namespace weft
