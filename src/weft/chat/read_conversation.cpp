// Conversations as their writers have them: messages with roles, as ShareGPT has them, and contents in parts.
#include <algorithm>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/chat/conversation.h"

namespace weft::chat {
namespace {

const Value* get(const Value& v, std::string_view key) { return v.is_dict() ? v.dict().get(key) : nullptr; }

const Value& list_in(const Value& v, std::string_view what, std::string_view source) {
  if (!v.holds<List>()) throw FileError(fmt::format("{}: \"{}\": expected a list", source, what));
  return v;
}

// Of `key`, where it is there and not null.
Value list_of(const Value& conversation, std::string_view key, std::string_view source) {
  const Value* found = get(conversation, key);
  return found == nullptr ? Value() : found->is_none() ? Value(nullptr) : list_in(*found, key, source);
}

// ShareGPT's {"from": "human", "value": ...} as {"role": "user", "content": ...}; others stay.
Value with_role(const Value& message, std::string_view where) {
  constexpr std::pair<std::string_view, const char*> kRoles[] = {{"human", "user"},    {"user", "user"},
                                                                 {"gpt", "assistant"}, {"assistant", "assistant"},
                                                                 {"system", "system"}, {"tool", "tool"}};
  const Value *from = get(message, "from"), *value = get(message, "value");
  if (get(message, "role") != nullptr || from == nullptr || value == nullptr) return message;
  const auto role = std::find_if(std::begin(kRoles), std::end(kRoles), [from](const auto& known) {
    return from->is_string() && from->string() == known.first;
  });
  if (role == std::end(kRoles))
    throw FileError(fmt::format("{}: \"from\" is {}; it may be human, user, gpt, assistant, system or tool", where,
                                from->is_string() ? in_quotes(from->string()) : std::string(kind_of(*from))));
  Value renamed = make_dict();
  for (const auto& [key, one] : message.dict().items()) {
    if (key.string() == "from")
      renamed.dict().set("role", role->second);
    else
      renamed.dict().set(key.string() == "value" ? "content" : key, one);
  }
  return renamed;
}

// That a part which is a text has one. What tools give back is theirs.
void judge_parts(const Value& message, std::string_view where) {
  const Value* content = get(message, "content");
  if (content == nullptr || !content->holds<List>() || message.dict().get("role")->string() == "tool") return;
  const Items& parts = content->list().items;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Value *type = get(parts[i], "type"), *text = get(parts[i], "text");
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
    if (const Value* v = get(message, key); v != nullptr && !v->is_none() && !weight_of(*v))
      throw FileError(fmt::format("{}: its \"{}\" is neither 0 nor 1, true nor false", where, key));
}

Value message_of(const Value& v, const std::string& where) {
  const Value message = with_role(v, where);
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

}  // namespace

Conversation read_conversation(std::string_view json, std::string_view source, std::string_view messages_key) {
  const Value v = parse_value(json, source);
  const Value* found = v.holds<List>() ? &v : get(v, messages_key);
  if (found == nullptr)
    throw FileError(
        fmt::format("{}: expected a list of messages, or an object with {}{}", source, in_quotes(messages_key),
                    get(v, "conversations") == nullptr
                        ? ""
                        : "; it has \"conversations\": name that as the key of its messages (messages_key)"));
  Conversation c;
  Items messages = list_in(*found, messages_key, source).list().items;
  for (size_t i = 0; i < messages.size(); ++i)
    messages[i] = message_of(messages[i], fmt::format("{}: message {}", source, i + 1));
  c.messages = make_list(std::move(messages));
  c.tools = list_of(v, "tools", source);
  c.documents = list_of(v, "documents", source);
  if (const Value* more = get(v, "chat_template_kwargs")) {
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
