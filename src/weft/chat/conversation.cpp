#include "weft/chat/conversation.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft::chat {
namespace {

bool is_assistant(const Value& message) { return message.dict().get("role")->string() == "assistant"; }

// The first messages of a conversation.
Conversation beginning_of(const Conversation& c, size_t count) {
  Conversation part = c;
  const Items& all = c.messages.list().items;
  part.messages = make_list(Items(all.begin(), all.begin() + ptrdiff_t(count)));
  return part;
}

// Without those of messages that do not count. A template marks each message of the assistant once.
std::vector<Span> trained(const Conversation& c, std::vector<Span> generated) {
  std::vector<Span> spans;
  size_t next = 0;
  bool all = true;
  for (const Value& message : c.messages.list().items) {
    if (!is_assistant(message)) continue;
    const bool counts = is_trained(message);
    all = all && counts;
    if (counts && next < generated.size()) spans.push_back(generated[next]);
    ++next;
  }
  if (all) return generated;
  if (next != generated.size())
    fail(
        fmt::format("no mask of what the assistant said: some of its messages do not count, and the template marks {} "
                    "pieces with {{% generation %}} for {} messages",
                    generated.size(), next));
  return spans;
}

// With more in each text, but for those that say of which type something is.
Value with_other_texts(const Value& value) {
  if (value.is_string()) return Value(value.string() + "weft-probe");
  if (value.is_dict()) {
    Value other = make_dict();
    for (const auto& [key, one] : value.dict().items())
      other.dict().set(key, key.string() == "type" ? one : with_other_texts(one));
    return other;
  }
  if (!value.holds<List>()) return value;
  Items items = value.list().items;
  for (Value& item : items) item = with_other_texts(item);
  return make_list(std::move(items));
}

[[noreturn]] void fail_mask(size_t message, std::string_view why) {
  fail(
      fmt::format("no mask of what the assistant said: message {}: {} (a template with {{% generation %}} says what it "
                  "is)",
                  message + 1, why));
}

}  // namespace

std::tm day_named(const std::string& date, const std::string& name) {
  std::tm day{};
  const char* end = strptime(date.c_str(), "%Y-%m-%d", &day);
  if (end == nullptr || *end != 0) throw ConfigError(fmt::format("{} {}: expected YYYY-MM-DD", name, date));
  return day;
}

ChatTemplate::ChatTemplate(std::map<std::string, Template> templates, Value special_tokens, std::string name)
    : templates_(std::move(templates)), special_tokens_(std::move(special_tokens)), name_(std::move(name)) {
  for (const auto& [key, one] : templates_)
    if (takes_parts(one)) with_parts_.insert(key);
  for (const auto& [key, one] : templates_)
    if (takes_calls(one)) with_calls_.insert(key);
}

// Whether it shows the text of a content that is a list of parts, and not the list. Told by what it makes of one: most
// templates take a text for granted, and join it to others (an error) or print the list as Python writes it.
bool ChatTemplate::takes_parts(const Template& one) const {
  constexpr std::string_view kText = "weft-probe";
  const Value messages =
      parse_value(R"([{"role": "user", "content": [{"type": "text", "text": "weft-probe"}]}])", "a probe");
  Dict variables = variables_of({.messages = messages}, {});
  try {
    const std::string text = one.render(variables).text;
    const size_t at = text.find(kText);
    return at != std::string::npos && !text.substr(0, at).ends_with("'text': '") &&
           !text.substr(0, at).ends_with("\"text\": \"");
  } catch (const Error&) { return false; }
}

// Whether it shows what the assistant calls, or cannot be told.
bool ChatTemplate::takes_calls(const Template& one) const {
  constexpr std::string_view kText = "weft-probe";
  const Value tools = parse_value(
      R"([{"type": "function", "function": {"name": "f", "description": "f", "parameters": {"type": "object",
          "properties": {"x": {"type": "string", "description": "x"}}}}}])",
      "a probe");
  const Value messages = parse_value(
      R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "000000001",
          "type": "function", "function": {"name": "f", "arguments": {"x": "weft-probe"}}}]}])",
      "a probe");
  try {
    const std::string text = one.render(variables_of({.messages = messages, .tools = tools}, {})).text;
    return text.find(kText) != std::string::npos;
  } catch (const Error&) { return true; }
}

std::string ChatTemplate::chosen(const Conversation& c) const {
  const bool tools = name_.empty() && truth(c.tools) && templates_.contains("tool_use");
  return tools ? "tool_use" : name_.empty() ? "default" : name_;
}

Dict ChatTemplate::variables_of(const Conversation& c, const RenderOptions& o) const {
  Dict variables;
  for (const auto& [name, token] : special_tokens_.dict().items()) variables.set(name, token);
  variables.set("strftime_now", clock_function(o.now));
  if (c.variables.is_dict())
    for (const auto& [name, value] : c.variables.dict().items()) variables.set(name, value);
  variables.set("messages", c.messages);
  variables.set("add_generation_prompt", o.add_generation_prompt);
  if (!c.tools.is_undefined()) variables.set("tools", c.tools);
  if (!c.documents.is_undefined()) variables.set("documents", c.documents);
  return variables;
}

Rendering ChatTemplate::rendered(const Conversation& c, const RenderOptions& o) const {
  const std::string name = chosen(c);
  Dict variables = variables_of(c, o);
  Value messages = c.messages;
  if (!with_parts_.contains(name)) messages = with_joined_parts(messages);
  if (!with_calls_.contains(name)) messages = with_written_calls(messages);
  variables.set("messages", messages);
  return templates_.at(name).render(variables);
}

std::string ChatTemplate::render(const Conversation& c, const RenderOptions& o) const { return rendered(c, o).text; }

ChatTemplate::Masked ChatTemplate::render_masked(const Conversation& c, const RenderOptions& o) const {
  Rendering whole = rendered(c, o);
  if (whole.lost_generated)
    fail(
        "no mask of what the assistant said: {% generation %} stands in a macro, call, set or filter, where its place "
        "in the text is not known");
  refuse_left_out(c, whole.text, o);
  // The model would learn to call what it was never told of, and to answer from what it has not read.
  for (const std::string& name : left_out(c, whole.text, o))
    fail(fmt::format(
        "the template leaves out the {}: take a chat template that shows them, or leave them out of the row",
        in_quotes(name)));
  if (templates_.at(chosen(c)).marks_generated())
    return {std::move(whole.text), trained(c, std::move(whole.generated))};
  std::vector<Span> spans = assistant_spans(c, whole.text, o);
  return {std::move(whole.text), std::move(spans)};
}

// A template that knows no role of this name passes over its message, and the answer to it is left without the
// question.
void ChatTemplate::refuse_left_out(const Conversation& c, const std::string& whole, const RenderOptions& o) const {
  constexpr std::string_view kUsual[] = {"system", "user", "assistant"};
  const Items& messages = c.messages.list().items;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string role = messages[i].dict().get("role")->string(), text = text_in(messages[i]);
    if (text.empty() || std::find(std::begin(kUsual), std::end(kUsual), role) != std::end(kUsual)) continue;
    Conversation other = c;
    Items changed = messages;
    changed[i] = make_dict();
    for (const auto& [key, one] : messages[i].dict().items())
      changed[i].dict().set(key, key.string() == "content" ? Value(text + "weft-probe") : one);
    other.messages = make_list(std::move(changed));
    try {
      if (render(other, o) != whole) continue;
    } catch (const Error&) { continue; }  // it looked at the text
    fail(fmt::format("message {}: the template leaves out what the role {} says", i + 1, in_quotes(role)));
  }
}

std::vector<std::string> ChatTemplate::left_out(const Conversation& c, const RenderOptions& o) const {
  return left_out(c, render(c, o), o);
}

std::vector<std::string> ChatTemplate::left_out(const Conversation& c, const std::string& whole,
                                                const RenderOptions& o) const {
  std::vector<std::string> names;
  const auto judge = [&](const char* name, Value Conversation::*of) {
    if (!truth(c.*of)) return;
    Conversation other = c;
    other.*of = with_other_texts(c.*of);
    try {
      if (render(other, o) == whole) names.emplace_back(name);
    } catch (const Error&) {}  // it looked at them
  };
  judge("tools", &Conversation::tools);
  judge("documents", &Conversation::documents);
  return names;
}

std::vector<Span> ChatTemplate::assistant_spans(const Conversation& c, const std::string& whole,
                                                const RenderOptions& o) const {
  RenderOptions prompt = o, end = o;
  prompt.add_generation_prompt = true;
  end.add_generation_prompt = false;
  std::vector<Span> spans;
  const Items& messages = c.messages.list().items;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_assistant(messages[i]) || !is_trained(messages[i])) continue;
    std::string before, after;
    try {
      before = render(beginning_of(c, i), prompt);
      after = render(beginning_of(c, i + 1), end);
    } catch (const Error& e) {
      fail_mask(i, fmt::format("the conversation up to it cannot be rendered: {}", e.what()));
    }
    if (!after.starts_with(before))
      fail_mask(i, "with it, the text does not begin with the text before it and its generation prompt");
    if (!whole.starts_with(after)) fail_mask(i, "the whole text does not begin with the text up to it");
    if (!spans.empty() && before.size() < spans.back().end) fail_mask(i, "it overlaps the one before it");
    spans.push_back({before.size(), after.size()});
  }
  return spans;
}

TokenizedConversation encode_conversation(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                          const Conversation& conversation, const RenderOptions& options) {
  const auto masked = chat.render_masked(conversation, options);
  TokenizedConversation out;
  tokenizer.encode(masked.text, out.ids, SpecialText::kParsed);
  out.mask = token_mask(tokenizer, masked.text, out.ids, masked.assistant);
  return out;
}

// --- from characters to tokens ---

namespace {
// Where each token ends in the text; empty: the tokens' own texts, one after the other, are not the text.
std::vector<size_t> ends_of_tokens(const Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids) {
  std::vector<size_t> ends;
  size_t at = 0;
  for (const int32_t& id : ids) {
    const std::string part = tokenizer.decode({&id, 1}, Tokenizer::Specials::kShown);
    if (text.substr(at, part.size()) != part) return {};
    ends.push_back(at += part.size());
  }
  return at == text.size() ? ends : std::vector<size_t>();
}

// How many tokens the text up to here has.
size_t tokens_before(const Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids,
                     SpecialText special) {
  std::vector<int32_t> part;
  tokenizer.encode(text, part, special);
  if (part.size() > ids.size() || !std::equal(part.begin(), part.end(), ids.begin()))
    fail(fmt::format("no mask of tokens: this tokenizer joins the texts before and after byte {} of the conversation",
                     text.size()));
  return part.size();
}

}  // namespace

std::vector<uint8_t> token_mask(const Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids,
                                const std::vector<Span>& spans, SpecialText special) {
  std::vector<uint8_t> mask(ids.size(), 0);
  const std::vector<size_t> ends = ends_of_tokens(tokenizer, text, ids);
  const auto mark = [&mask](size_t from, size_t to) {
    if (from < to) std::fill(mask.begin() + ptrdiff_t(from), mask.begin() + ptrdiff_t(to), uint8_t{1});
  };
  for (const Span& s : spans) {
    if (s.begin == s.end) continue;
    if (ends.empty()) {
      mark(tokens_before(tokenizer, text.substr(0, s.begin), ids, special),
           tokens_before(tokenizer, text.substr(0, s.end), ids, special));
      continue;
    }
    const auto first = std::upper_bound(ends.begin(), ends.end(), s.begin);  // the token with this byte
    const auto last = std::lower_bound(first, ends.end(), s.end);
    mark(size_t(first - ends.begin()), size_t(last - ends.begin()) + 1);
  }
  return mask;
}

}  // namespace weft::chat
