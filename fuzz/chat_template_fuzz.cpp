// Any bytes as a chat template: refused with an Error that names it, or a text, the same once more, whose marked parts
// lie in it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "weft/base/error.h"
#include "weft/chat/template.h"

namespace {

constexpr const char* kVariables = R"({"messages": [{"role": "user", "content": "a é"},
  {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"x": [1, 2.5, null, true]}}]}],
  "add_generation_prompt": true, "bos_token": "<s>", "n": 3, "s": "ab c"})";

bool begins_with_source(const weft::Error& e) { return std::string_view(e.what()).starts_with("fuzz: "); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const weft::chat::Value variables = weft::chat::parse_value(kVariables, "variables");
  try {
    const weft::chat::Template chat({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto once = chat.render(variables.dict()), again = chat.render(variables.dict());
    if (once.text != again.text) std::abort();
    for (const auto& span : once.generated)
      if (span.begin > span.end || span.end > once.text.size()) std::abort();
  } catch (const weft::Error& e) {
    if (!begins_with_source(e)) std::abort();
  }
  return 0;
}
