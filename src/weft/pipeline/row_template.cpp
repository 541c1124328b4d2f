#include "weft/pipeline/row_template.h"

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/json_path.h"
#include "weft/pipeline/keys_seen.h"

namespace weft {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw ConfigError(fmt::format("{}: {}; as in \"Question: {{question}}\\nAnswer: {{answer}}\"", in_quotes(text), why));
}

}  // namespace

RowTemplate::RowTemplate(std::string_view text) {
  if (text.find_first_of("{}") == std::string_view::npos) {
    is_key_ = true;
    parts_.push_back({"", std::string(text), false});
    return;
  }
  std::string before;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const bool twice = text.substr(at, 2) == (c == '{' ? "{{" : "}}");
    if (c != '{' && c != '}') {
      before += text[at++];
    } else if (twice) {
      before += c;
      at += 2;
    } else {
      const size_t end = text.find_first_of("{}", at + 1);
      if (c == '}') refuse(text, "a } without a {; a brace itself is written twice");
      if (end == std::string_view::npos || text[end] == '{')
        refuse(text, "a { without its }; a brace itself is written twice");
      std::string key(text.substr(at + 1, end - at - 1));
      const bool optional = key.ends_with('?');
      if (optional) key.pop_back();
      if (key.empty()) refuse(text, "{} names no key");
      parts_.push_back({std::move(before), std::move(key), optional});
      before.clear();
      at = end + 1;
    }
  }
  if (parts_.empty()) refuse(text, "no {key} in it");
  end_ = std::move(before);
}

std::vector<RowTemplate::Key> RowTemplate::keys() const {
  std::vector<Key> all;
  for (const Part& part : parts_) all.push_back({part.key, part.optional});
  return all;
}

std::string RowTemplate::fill(const nlohmann::json& row) const {
  std::string text;
  for (const Part& part : parts_) {
    const nlohmann::json* value = find_path(row, part.key);
    const bool none = value == nullptr || value->is_null();
    if (none && !part.optional)
      throw Error(fmt::format("no {} {}; there are {}", value == nullptr ? "key" : "value under", in_quotes(part.key),
                              key_list(row)));
    if (none || (part.optional && value->is_string() && value->get_ref<const std::string&>().empty())) continue;
    if (value->is_structured())
      throw Error(fmt::format("{}: expected a text or a number, got {}", in_quotes(part.key), shown(*value)));
    text += part.before;
    text += value->is_string() ? value->get_ref<const std::string&>() : value->dump();
  }
  return text + end_;
}

}  // namespace weft
