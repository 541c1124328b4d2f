#include "weft/forecast/csv.h"

#include <set>

#include "weft/base/error.h"

namespace weft {
namespace {
constexpr size_t kMostCell = 1 << 20;  // bytes
}

CsvReader::CsvReader(const std::filesystem::path& path) : path_(path.string()), file_(path, std::ios::binary) {
  if (!file_ || std::filesystem::is_directory(path)) throw FileError(fmt::format("{}: cannot be read", path_));
  auto names = read_row();
  if (!names) throw FileError(fmt::format("{}: is empty, where a line with the names of columns must be", path_));
  names_ = std::move(*names);
  if (names_[0].rfind("\xEF\xBB\xBF", 0) == 0) names_[0].erase(0, 3);
  std::set<std::string> seen;
  for (const std::string& name : names_)
    if (!seen.insert(name).second) throw FileError(fmt::format("{}: line 1 has two columns \"{}\"", path_, name));
}

std::optional<std::vector<std::string>> CsvReader::next() {
  auto cells = read_row();
  if (cells && cells->size() != names_.size())
    throw FileError(fmt::format("{}:{}: {} cells, but line 1 has {} names (a cell with a comma must be quoted)", path_,
                                row_line_, cells->size(), names_.size()));
  return cells;
}

std::optional<std::vector<std::string>> CsvReader::read_row() {
  std::vector<std::string> cells(1);
  bool quoted = false, any = false;
  row_line_ = line_;
  for (int c = file_.get(); c != EOF; c = file_.get()) {
    if (c == '\n') ++line_;
    if (quoted) {
      if (c != '"')
        cells.back() += char(c);
      else if (file_.peek() == '"')
        cells.back() += char(file_.get());
      else
        quoted = false;
    } else if (c == '"' && cells.back().empty()) {
      quoted = any = true;
    } else if (c == ',') {
      cells.emplace_back();
      any = true;
    } else if (c == '\n') {
      if (any) return cells;
      row_line_ = line_;
    } else if (c != '\r') {
      cells.back() += char(c);
      any = true;
    }
    if (cells.back().size() > kMostCell)
      throw FileError(fmt::format("{}:{}: a cell of more than {} bytes", path_, row_line_, kMostCell));
  }
  if (quoted) throw FileError(fmt::format("{}:{}: a quote that does not end", path_, row_line_));
  if (!any) return std::nullopt;
  return cells;
}

}  // namespace weft
