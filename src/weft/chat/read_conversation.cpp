// Conversations as their writers have them: messages with roles, as ShareGPT has them, and contents in parts.
#include <algorithm>
#include <deque>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/chat/conversation.h"

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

// The messages of one conversation, in order: {"from": "human", "value": ...} as {"role": "user", "content": ...}. What
// a function_call says becomes "tool_calls" with ids, by which the observations behind it are known.
class ShareGpt {
 public:
  // Others stay as they are. Throws FileError, beginning with `where`, for a role that is not known and for calls that
  // are none.
  Value renamed(const Value& message, std::string_view where);

 private:
  Value calls_of(const Value& value, std::string_view where);

  int64_t num_calls_ = 0;
  std::deque<std::string> open_;  // ids of calls without an observation
};

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

// "tools" as a text: a JSON list of tools, or nothing. Functions alone become {"type": "function", "function": ...}, as
// templates take them for granted.
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

// An object with another value under a key, where that stands or at its end.
Value with(const Value& object, const char* key, Value value) {
  Value changed = make_dict();
  for (const auto& [name, one] : object.dict().items()) changed.dict().set(name, one);
  changed.dict().set(key, std::move(value));
  return changed;
}

// "a.b": of that name, or else "b" in "a".
const Value* get_path(const Value& v, std::string_view key) {
  if (const Value* found = get(v, key)) return found;
  for (size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.', dot + 1))
    if (const Value* outer = get(v, key.substr(0, dot)))
      if (const Value* found = get_path(*outer, key.substr(dot + 1))) return found;
  return nullptr;
}

const Value& list_in(const Value& v, std::string_view what, std::string_view source) {
  if (!v.holds<List>()) throw FileError(fmt::format("{}: \"{}\": expected a list", source, what));
  return v;
}

// The list under `key`; undefined if absent, none if null.
Value list_of(const Value& conversation, std::string_view key, std::string_view source) {
  const Value* found = get(conversation, key);
  return found == nullptr ? Value() : found->is_none() ? Value(nullptr) : list_in(*found, key, source);
}

// {"type": "text", "value": ...}, as some write it, as {"type": "text", "text": ...}. What tools give back is theirs.
Value with_text_parts(const Value& message) {
  const Value *content = get(message, "content"), *role = get(message, "role");
  const bool tool = role != nullptr && role->is_string() && role->string() == "tool";
  if (content == nullptr || !content->holds<List>() || tool) return message;
  Items parts = content->list().items;
  for (Value& part : parts) {
    const Value *type = get(part, "type"), *value = get(part, "value");
    const bool text = type != nullptr && type->is_string() && type->string() == "text";
    if (!text || value == nullptr || !value->is_string() || given(part, "text") != nullptr) continue;
    Value renamed = make_dict();
    for (const auto& [key, one] : part.dict().items())
      if (key.string() != "text") renamed.dict().set(key.string() == "value" ? Value("text") : key, one);
    part = std::move(renamed);
  }
  return with(message, "content", make_list(std::move(parts)));
}

// Checks that text parts hold a text; results of tools are not checked.
void judge_parts(const Value& message, std::string_view where) {
  const Value* content = get(message, "content");
  if (content == nullptr || !content->holds<List>() || message.dict().get("role")->string() == "tool") return;
  const Items& parts = content->list().items;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Value *type = given(parts[i], "type"), *text = given(parts[i], "text");
    if (!parts[i].is_dict() || (text != nullptr && text->is_string())) continue;
    if (type != nullptr && !(type->is_string() && type->string() == "text")) continue;
    std::string keys;
    for (const auto& one : parts[i].dict().items()) keys += (keys.empty() ? "" : ", ") + in_quotes(one.first.string());
    throw FileError(fmt::format("{}: part {} of its content: {}; a part is {{\"type\": \"text\", \"text\": \"...\"}}",
                                where, i + 1,
                                text != nullptr ? "\"text\" is no text" : "has no \"text\", but " + keys));
  }
}

// Names by which writers say whether a message counts in training.
constexpr const char* kWeights[] = {"weight", "train", "loss_weight"};

// 0 or 1, of a truth or a number; none of anything else.
std::optional<bool> weight_of(const Value& v) {
  double number = 2;
  if (v.is<bool>()) number = std::get<bool>(v.of);
  if (v.is<int64_t>()) number = double(std::get<int64_t>(v.of));
  if (v.is<double>()) number = std::get<double>(v.of);
  return number == 0 || number == 1 ? std::optional(number == 1) : std::nullopt;
}

void judge_weights(const Value& message, std::string_view where) {
  for (const char* key : kWeights)
    if (const Value* v = given(message, key); v != nullptr && !weight_of(*v))
      throw FileError(fmt::format("{}: its \"{}\" is neither 0 nor 1, true nor false", where, key));
}

Value message_of(const Value& v, const std::string& where, ShareGpt& share_gpt) {
  const Value message = with_text_parts(share_gpt.renamed(v, where));
  const Value* role = get(message, "role");
  if (role == nullptr || !role->is_string())
    throw FileError(fmt::format("{}: each message is an object with a \"role\"", where));
  judge_parts(message, where);
  judge_weights(message, where);
  return message;
}

bool is_text_part(const Value& part) {
  return part.is_string() || (get(part, "text") != nullptr && get(part, "text")->is_string());
}

// {"system": "...", "messages": [...]}: it is the first message, where messages begin with none of the system.
void add_system(const Value& conversation, Items& messages, std::string_view source) {
  const Value* system = conversation.is_dict() ? given(conversation, "system") : nullptr;
  if (system == nullptr) return;
  if (!system->is_string()) throw FileError(fmt::format("{}: \"system\": expected a text", source));
  if (system->string().find_first_not_of(" \t\r\n") == std::string::npos) return;
  const Value* first = messages.empty() ? nullptr : get(messages[0], "role");
  if (first != nullptr && first->is_string() && (first->string() == "system" || first->string() == "developer")) return;
  messages.insert(messages.begin(), object({{"role", "system"}, {"content", *system}}));
}

}  // namespace

Conversation read_conversation(std::string_view json, std::string_view source, std::string_view messages_key) {
  const Value v = parse_value(json, source);
  const Value* found = v.holds<List>() ? &v : get_path(v, messages_key);
  if (found == nullptr || found->is_none())
    throw FileError(
        fmt::format("{}: expected a list of messages, or an object with {}{}", source, in_quotes(messages_key),
                    given(v, "conversations") == nullptr
                        ? ""
                        : "; it has \"conversations\": name that as the key of its messages (messages_key)"));
  Conversation c;
  Items messages = list_in(*found, messages_key, source).list().items;
  ShareGpt share_gpt;
  for (size_t i = 0; i < messages.size(); ++i)
    messages[i] = message_of(messages[i], fmt::format("{}: message {}", source, i + 1), share_gpt);
  add_system(v, messages, source);
  c.messages = make_list(std::move(messages));
  const Value* tools = get(v, "tools");
  c.tools =
      tools != nullptr && tools->is_string() ? tools_of_text(tools->string(), source) : list_of(v, "tools", source);
  c.documents = list_of(v, "documents", source);
  if (const Value* more = given(v, "chat_template_kwargs"); more != nullptr) {
    if (!more->is_dict()) throw FileError(fmt::format("{}: \"chat_template_kwargs\": expected an object", source));
    c.variables = *more;
  }
  return c;
}

bool is_trained(const Value& message) {
  for (const char* key : kWeights)
    if (const Value* v = get(message, key); v != nullptr && weight_of(*v) == false) return false;
  if (!text_in(message).empty()) return true;
  for (const auto& [key, one] : message.dict().items()) {
    constexpr std::string_view kOthers[] = {"role", "name", "weight", "train", "loss_weight"};
    const bool other = std::find(std::begin(kOthers), std::end(kOthers), key.string()) != std::end(kOthers);
    if (!other && truth(one)) return true;  // calls of tools, reasoning
  }
  return false;
}

std::string text_in(const Value& message) {
  const Value* content = get(message, "content");
  if (content == nullptr) return "";
  if (content->is_string()) return content->string();
  std::string text;
  if (!content->holds<List>()) return text;
  for (const Value& part : content->list().items)
    if (is_text_part(part))
      text += (text.empty() ? "" : "\n") + (part.is_string() ? part.string() : get(part, "text")->string());
  return text;
}

std::string calls_in(const Value& message) {
  const Value* calls = get(message, "tool_calls");
  if (calls == nullptr || !calls->holds<List>()) return "";
  std::string text;
  Budget budget;
  for (const Value& call : calls->list().items) {
    const Value* function = get(call, "function");
    text += (text.empty() ? "" : "\n") + to_json(budget, function != nullptr ? *function : call, {});
  }
  return text;
}

Value with_written_calls(const Value& messages) {
  Items all = messages.list().items;
  for (Value& message : all) {
    const std::string calls = calls_in(message);
    if (calls.empty()) continue;
    const std::string said = text_in(message);
    Value written = make_dict();
    for (const auto& [key, one] : message.dict().items())
      if (key.string() != "tool_calls") written.dict().set(key, one);
    written.dict().set("content", said + (said.empty() ? "" : "\n") + calls);
    message = std::move(written);
  }
  return make_list(std::move(all));
}

Value with_joined_parts(const Value& messages) {
  Items all = messages.list().items;
  for (size_t i = 0; i < all.size(); ++i) {
    const Value* content = get(all[i], "content");
    if (content == nullptr || !content->holds<List>()) continue;
    for (const Value& part : content->list().items) {
      if (is_text_part(part)) continue;
      const Value* type = get(part, "type");
      fail(fmt::format(
          "message {}: has a part {}, and the template takes texts alone", i + 1,
          type != nullptr && type->is_string() ? "of type " + in_quotes(type->string()) : "that is no text"));
    }
    Value joined = make_dict();
    for (const auto& [key, one] : all[i].dict().items())
      joined.dict().set(key, key.string() == "content" ? Value(text_in(all[i])) : one);
    all[i] = joined;
  }
  return make_list(std::move(all));
}

}  // namespace weft::chat
