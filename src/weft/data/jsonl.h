// JSON lines: one JSON object a line, one of its fields a document.
#pragma once
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace weft {

// A hint for a row without text that seems to hold a conversation: what it is and what to do with it. Empty: it holds
// none.
std::string conversation_hint(const nlohmann::json& row);

// Whether this is JSON lines, by its name: .jsonl, .json, .ndjson.
bool is_jsonl(const std::filesystem::path& file);

// The rows of a file that is JSON lines, one after the other.
struct JsonlRows {
  std::string_view text;  // all of the file
  std::string source;     // its name, for messages
};
struct JsonlRow {
  const nlohmann::json& json;
  std::string_view text;     // as it is written, with its keys in their order
  const std::string& where;  // "source: line N", which messages about it begin with
  int64_t line;              // from 1
  size_t done;               // bytes of the text
};
// Hands over row after row. Lines of white space, and a byte order mark before the first, are skipped. Throws
// FileError, `source: line N...`, for a line that is no valid JSON (weft/base/json.h).
void for_each_row(const JsonlRows& rows, const std::function<void(const JsonlRow&)>& take);

struct JsonlRequest {
  std::string_view text;     // all of the file
  std::string source;        // its name, for messages
  std::string key = "text";  // of the string that is the document; "a.b" is "b" in "a", too
};
// Hands over document after document, and how many bytes of `text` are done. Lines of white space, and a byte order
// mark before the first, are skipped. Throws FileError, `source: line N...`, for a line that is no valid JSON object
// (weft/base/json.h) or has no string under the key.
void for_each_document(const JsonlRequest& request,
                       const std::function<void(std::string_view document, size_t done)>& take);

}  // namespace weft
