// Any bytes as a row of texts (the first byte says of what, and with which template): refused with an Error that names
// its place, or a prompt and completions that have tokens.
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/pipeline/row_encoder.h"

namespace {

weft::RowEncoder encoder(const char* chat_template, std::vector<std::string> completions) {
  return {weft::make_byte_tokenizer(),
          {.tokenizer = "byte", .chat_template = chat_template, .completions = std::move(completions)}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const weft::RowEncoder encoders[] = {
      encoder("chatml", {"chosen", "rejected"}), encoder("none", {"chosen", "rejected"}),
      encoder("chatml", {"completion"}), encoder("alpaca", {"chosen", "rejected"})};
  if (size == 0) return 0;
  const std::string_view row(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string where = "fuzz: line 1";
  try {
    const nlohmann::json json = weft::parse_json(row, where);
    const weft::JsonFields is_object(json, where);
    const weft::EncodedRow out =
        encoders[data[0] % 4].encode({.json = json, .text = row, .where = where, .line = 1, .done = row.size()});
    if (out.prompt.empty() || out.completions.empty()) std::abort();
    for (const std::vector<int32_t>& ids : out.completions)
      if (ids.empty()) std::abort();
  } catch (const weft::Error& e) {
    if (!std::string_view(e.what()).starts_with(where)) std::abort();
  }
  return 0;
}
