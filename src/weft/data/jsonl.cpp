#include "weft/data/jsonl.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/json_path.h"

namespace weft {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// An array over many lines is JSON, but not JSON lines: say so, instead of what is wrong with its first line.
void refuse_array(const JsonlRows& r) {
  const size_t first = r.text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || r.text[first] != '[') return;
  throw FileError(
      fmt::format("{}: is one JSON array; weft reads one JSON object a line (jq -c '.[]' makes them)", r.source));
}

// The parser counts lines of its own, of which there is one: "line 7: line 1, column 2" is line 7, column 2.
nlohmann::json parse_line(std::string_view row, const std::string& source) {
  try {
    return parse_json(row, source);
  } catch (const FileError& e) {
    const std::string_view what = e.what(), own = ": line 1, ";
    if (!what.substr(source.size()).starts_with(own)) throw;
    throw FileError(fmt::format("{}, {}", source, what.substr(source.size() + own.size())));
  }
}

std::string document_of(const nlohmann::json& json, const std::string& source, const std::string& key) {
  const JsonFields fields(json, source);
  const nlohmann::json* found = find_path(json, key);
  if (found != nullptr && found->is_string()) return found->get<std::string>();
  if (found != nullptr && !found->is_null()) fields.fail(key, "a string");
  if (const std::string hint = conversation_hint(json); !hint.empty())
    throw FileError(fmt::format("{}: {}", source, hint));
  std::string keys;
  for (const auto& [name, value] : json.items())
    if (value.is_string() && keys.size() < 100) keys += (keys.empty() ? "" : ", ") + in_quotes(name);
  throw FileError(fmt::format(
      "{}: {} is missing; {}", source, in_quotes(key),
      keys.empty() ? "there is no text in this line" : "say by data.text_key which of these is the document: " + keys));
}

}  // namespace

std::string conversation_hint(const nlohmann::json& row) {
  for (const char* talk : {"messages", "conversations", "conversation"})
    if (const auto* list = find_path(row, talk); list != nullptr && list->is_array())
      return fmt::format(
          "is a conversation (a list of {}), not a text; `weft data run` makes a dataset of conversations, with masks "
          "of what the assistant said, that data.train then names: examples/data/conversations.toml is one to begin "
          "with",
          in_quotes(talk));
  return "";
}

bool is_jsonl(const std::filesystem::path& file) {
  const std::string extension = file.extension().string();
  return extension == ".jsonl" || extension == ".json" || extension == ".ndjson";
}

void for_each_row(const JsonlRows& r, const std::function<void(const JsonlRow&)>& take) {
  refuse_array(r);
  int64_t line = 0;
  for (size_t at = r.text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; at < r.text.size();) {
    const size_t end = std::min(r.text.find('\n', at), r.text.size());
    const std::string_view row = r.text.substr(at, end - at);
    at = end + 1;
    ++line;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string source = fmt::format("{}: line {}", r.source, line);
    const nlohmann::json json = parse_line(row, source);
    take({.json = json, .text = row, .where = source, .line = line, .done = std::min(at, r.text.size())});
  }
}

void for_each_document(const JsonlRequest& r, const std::function<void(std::string_view document, size_t done)>& take) {
  for_each_row({.text = r.text, .source = r.source},
               [&](const JsonlRow& row) { take(document_of(row.json, row.where, r.key), row.done); });
}

}  // namespace weft
