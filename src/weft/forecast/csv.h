// Comma-separated values with a line of names (RFC 4180): cells may be quoted, and have commas and line ends then.
#pragma once
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace weft {

class CsvReader {
 public:
  // Reads the names. Throws FileError where there is no such file, or no name, or a name twice.
  explicit CsvReader(const std::filesystem::path& path);
  const std::vector<std::string>& names() const { return names_; }
  // The cells of the next row, as many as there are names; none behind the last. Lines without any character are passed
  // over. Throws FileError with the line where a row has another number of cells, or a quote has no end.
  std::optional<std::vector<std::string>> next();
  int64_t line() const { return row_line_; }  // where the row that was read begins, counted from 1

 private:
  std::optional<std::vector<std::string>> read_row();
  std::string path_;
  std::ifstream file_;
  std::vector<std::string> names_;
  int64_t row_line_ = 0, line_ = 1;
};

}  // namespace weft
