// What the readers of tokenizer.json's components share.
#pragma once
#include <string>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tokenize/pattern.h"

namespace weft {

// One component: {"type": ..., ...}, and where it stands, for messages. The JSON is borrowed.
struct Component {
  const nlohmann::json& json;
  std::string source;  // "tokenizer.json: normalizer"
  JsonFields fields() const { return {json, source}; }
  std::string type() const { return fields().string("type"); }
  // "tokenizer.json: normalizer X: weft does not know it; there are A, B".
  [[noreturn]] void fail_unknown(std::string_view known) const {
    throw FileError(fmt::format("{}: \"{}\": weft does not know it; it knows {}", source, type(), known));
  }
};

// Calls read(component) for a component or, of a Sequence, for each of those under `key`, in order; none for null.
template <class F>
void for_each_component(const Component& c, std::string_view key, const F& read, int depth = 0) {
  constexpr int kDeepest = 8;
  if (c.json.is_null()) return;
  if (c.type() != "Sequence") return read(c);
  if (depth == kDeepest) throw FileError(fmt::format("{}: sequences are nested more than {} deep", c.source, kDeepest));
  const JsonFields fields = c.fields();
  const nlohmann::json* parts = fields.find(key);
  if (parts == nullptr || !parts->is_array()) throw FileError(fmt::format("{}: expected an array", fields.where(key)));
  for (const auto& part : *parts) for_each_component(Component{part, c.source}, key, read, depth + 1);
}

// The expression of {"Regex": ...}, or the text of {"String": ...}, under "pattern".
struct PatternText {
  std::string text;
  bool is_regex;
};
PatternText read_pattern(const Component& c);
// Every `what` of the text, if that is not empty, becomes `by`.
std::string with_replaced(std::string_view text, std::string_view what, std::string_view by);

}  // namespace weft
