// Any bytes as a row of JSON with a text: refused where the general reader refuses it, else the same text and the same
// rest; and any text that is UTF-8 is written as the general writer writes it.
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/utf8.h"
#include "weft/pipeline/json_row.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view row(reinterpret_cast<const char*>(data), size);
  nlohmann::json slow;
  bool refused = false;
  try {
    slow = weft::parse_json(row, "fuzz");
  } catch (const weft::Error&) { refused = true; }
  try {
    weft::JsonRow fast = weft::parse_json_row(row, "text", "fuzz", {});
    if (refused) std::abort();
    if (fast.has_text) fast.json["text"] = fast.text;
    if (fast.json != slow) std::abort();
  } catch (const weft::Error&) {
    if (!refused) std::abort();
  }
  if (weft::utf8_error(row) != std::string_view::npos) return 0;
  std::string json;
  weft::append_json_string(json, row);
  if (json != nlohmann::json(std::string(row)).dump()) std::abort();
  return 0;
}
