#include "weft/apps/report.h"

#include <algorithm>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/records/progress.h"

namespace weft {
namespace {

// Words. A setting's name, with its dot, stays as a recipe has it.
std::string label_of(std::string key) {
  if (key.find('.') == std::string::npos) std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

// A size for people, followed by the exact one where they differ.
std::string size_text(double bytes) {
  const std::string text = format_bytes(bytes);
  return bytes < 1024 ? text : fmt::format("{} ({:.0f})", text, bytes);
}

std::string value_text(const std::string& key, const Report& value);

std::string list_text(const Report& list) {
  std::string text;
  for (const Report& one : list) text += (text.empty() ? "" : ", ") + value_text("", one);
  return "[" + text + "]";
}

std::string value_text(const std::string& key, const Report& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return std::any_of(text.begin(), text.end(), is_control) ? in_quotes(text) : text;
  }
  if (value.is_array()) return list_text(value);
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number() && key.ends_with("bytes")) return size_text(value.get<double>());
  if (value.is_number() && key == "parameters" && value.get<double>() >= 1000)
    return fmt::format("{} ({})", format_count(value.get<double>()), value.dump());
  return value.is_null() ? "-" : value.dump();
}

// A list of sentences stands below its key, one a line.
bool is_prose(const Report& value) {
  constexpr size_t kLong = 60;
  return value.is_array() && std::any_of(value.begin(), value.end(), [](const Report& one) {
           return one.is_string() && one.get_ref<const std::string&>().size() > kLong;
         });
}

std::string prose_text(const Report& lines, const std::string& indent) {
  std::string text;
  for (const Report& one : lines) text += indent + value_text("", one) + "\n";
  return text;
}

bool is_table(const Report& value) { return value.is_array() && !value.empty() && value.front().is_object(); }

std::string padded(std::string text, size_t width, bool right) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string table_text(const Report& table, const std::string& indent) {
  std::vector<std::vector<std::string>> cells(1);
  std::vector<size_t> widths;
  std::vector<bool> right;
  for (const auto& [key, value] : table.front().items()) {
    cells[0].push_back(label_of(key));
    widths.push_back(cells[0].back().size());
    right.push_back(value.is_number());
  }
  for (const Report& row : table) {
    cells.emplace_back();
    size_t column = 0;
    for (const auto& [key, value] : row.items()) {
      cells.back().push_back(key.ends_with("bytes") ? value.dump() : value_text(key, value));
      widths[column] = std::max(widths[column], cells.back().back().size());
      ++column;
    }
  }
  std::string text;
  for (const auto& row : cells) {
    std::string line = indent;
    for (size_t c = 0; c < row.size(); ++c) line += (c ? "  " : "") + padded(row[c], widths[c], right[c]);
    text += trimmed(std::move(line)) + "\n";
  }
  return text;
}

std::string lines_of(const Report& report, const std::string& indent) {
  size_t width = 0;
  for (const auto& [key, value] : report.items()) {
    if (!is_table(value) && !is_prose(value) && !value.is_object()) width = std::max(width, key.size());
  }
  std::string text;
  for (const auto& [key, value] : report.items()) {
    if (value.is_object())
      text += fmt::format("{}{}:\n{}", indent, label_of(key), lines_of(value, indent + "  "));
    else if (is_table(value))
      text += fmt::format("{}{}:\n{}", indent, label_of(key), table_text(value, indent + "  "));
    else if (is_prose(value))
      text += fmt::format("{}{}:\n{}", indent, label_of(key), prose_text(value, indent + "  "));
    else
      text += trimmed(indent + padded(label_of(key), width, false) + "  " + value_text(key, value)) + "\n";
  }
  return text;
}

}  // namespace

std::string to_text(const Report& report) { return lines_of(report, ""); }

}  // namespace weft
