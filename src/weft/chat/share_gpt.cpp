#include "weft/chat/share_gpt.h"

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft::chat {
namespace {

constexpr const char *kCall = "function_call", *kAnswer = "tool";
constexpr std::pair<std::string_view, const char*> kRoles[] = {
    {"human", "user"},          {"user", "user"},         {"gpt", "assistant"},     {"assistant", "assistant"},
    {"system", "system"},       {"tool", kAnswer},        {"observation", kAnswer}, {"function_response", kAnswer},
    {"tool_response", kAnswer}, {"function_call", kCall}, {"tool_call", kCall}};

Value object(std::initializer_list<std::pair<const char*, Value>> fields) {
  Value all = make_dict();
  for (const auto& [key, value] : fields) all.dict().set(key, value);
  return all;
}

const char* role_of(const Value& from, std::string_view where) {
  for (const auto& [name, role] : kRoles)
    if (from.is_string() && from.string() == name) return role;
  throw FileError(
      fmt::format("{}: \"from\" is {}; it may be human, user, gpt, assistant, system, function_call, "
                  "tool_call, observation, tool, tool_response or function_response",
                  where, from.is_string() ? in_quotes(from.string()) : std::string(kind_of(from))));
}

// A text that is an object in JSON, as that.
Value parsed(const Value& v) {
  if (!v.is_string() || v.string().find('{') == std::string::npos) return v;
  try {
    Value inner = parse_value(v.string(), "");
    return inner.is_dict() ? inner : v;
  } catch (const FileError&) { return v; }
}

}  // namespace

Value ShareGpt::renamed(const Value& message, std::string_view where) {
  const Value *from = get(message, "from"), *value = get(message, "value");
  if (given(message, "role") != nullptr || from == nullptr || value == nullptr) return message;
  const std::string_view role = role_of(*from, where);
  Value renamed = make_dict();
  for (const auto& [key, one] : message.dict().items()) {
    if (key.string() == "from")
      renamed.dict().set("role", role == kCall ? "assistant" : role);
    else if (key.string() == "value")
      renamed.dict().set("content", role == kCall ? Value("") : one);
    else if (key.string() != "role" && !(key.string() == "content" && one.is_none()))
      renamed.dict().set(key, one);
  }
  if (role == kCall) renamed.dict().set("tool_calls", calls_of(*value, where));
  if (role == kAnswer && !open_.empty()) {
    if (given(renamed, "tool_call_id") == nullptr) renamed.dict().set("tool_call_id", open_.front());
    open_.pop_front();
  }
  return renamed;
}

// {"name": ..., "arguments": {...}}, several of them in a list, or either as a text.
Value ShareGpt::calls_of(const Value& value, std::string_view where) {
  const auto fail = [&](const std::string& why) {
    throw FileError(
        fmt::format("{}: its \"value\" is no call of a function: {}; as in {{\"name\": \"search\", "
                    "\"arguments\": {{\"words\": \"rice\"}}}}",
                    where, why));
  };
  Value said = value;
  try {
    if (value.is_string()) said = parse_value(value.string(), "it");
  } catch (const FileError& e) { fail(e.what()); }
  Items calls;
  for (const Value& call : said.holds<List>() ? said.list().items : Items{said}) {
    const Value *name = get(call, "name"), *arguments = get(call, "arguments");
    if (name == nullptr || !name->is_string()) fail("it has no \"name\"");
    constexpr int64_t kNineDigits = 1'000'000'000;  // some templates take ids of nine characters alone
    const std::string id = fmt::format("{:09}", ++num_calls_ % kNineDigits);
    calls.push_back(
        object({{"id", id},
                {"type", "function"},
                {"function",
                 object({{"name", *name}, {"arguments", arguments == nullptr ? make_dict() : parsed(*arguments)}})}}));
    open_.push_back(id);
  }
  if (calls.empty()) fail("it is an empty list");
  return make_list(std::move(calls));
}

Value tools_of_text(const std::string& text, std::string_view source) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return {};
  const Value tools = parse_value(text, fmt::format("{}: \"tools\"", source));
  if (tools.is_none()) return {};
  if (!tools.holds<List>() && !tools.is_dict())
    throw FileError(fmt::format("{}: \"tools\": expected a list of tools, or such a list as a text", source));
  Items all;
  for (const Value& tool : tools.is_dict() ? Items{tools} : tools.list().items) {
    const bool alone =
        given(tool, "name") != nullptr && given(tool, "type") == nullptr && given(tool, "function") == nullptr;
    all.push_back(alone ? object({{"type", "function"}, {"function", tool}}) : tool);
  }
  return make_list(std::move(all));
}

}  // namespace weft::chat
