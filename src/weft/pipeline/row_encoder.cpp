#include "weft/pipeline/row_encoder.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/not_built.h"
#include "weft/pipeline/keys_seen.h"
#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/row_template.h"

namespace weft {
namespace {

using Ordered = nlohmann::ordered_json;  // keys stay in their order, which templates show

// The turns of HH.
constexpr std::string_view kHuman = "\n\nHuman:", kAssistant = "\n\nAssistant:";

// A row, whatever its writer calls things: a prompt and completions, each a text or a list of messages.
struct Said {
  Ordered prompt;
  std::vector<Ordered> completions;
  std::vector<std::string> fields;  // that the completions are from
  bool are_turns = false;           // texts as HH has them

  bool are_texts() const {
    return prompt.is_string() &&
           std::all_of(completions.begin(), completions.end(), [](const Ordered& c) { return c.is_string(); });
  }
};

std::string stripped(std::string_view text) {
  constexpr const char* kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == text.npos ? "" : std::string(text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin));
}

const Ordered* given(const Ordered& row, const std::string& key) {
  const auto found = row.find(key);
  return found == row.end() || found->is_null() ? nullptr : &*found;
}

bool is_by(const Ordered& message, std::initializer_list<std::string_view> names) {
  const Ordered *role = given(message, "role"), *who = role != nullptr ? role : given(message, "from");
  return who != nullptr && who->is_string() &&
         std::find(names.begin(), names.end(), who->get_ref<const std::string&>()) != names.end();
}
bool is_assistant(const Ordered& message) { return is_by(message, {"assistant", "gpt", "function_call", "tool_call"}); }
bool is_of_system(const Ordered& message) { return is_by(message, {"system", "developer"}); }
bool is_conversation(const Ordered& said) {
  return said.is_array() && is_by(said.front(), {"system", "developer", "user", "human"});
}

Ordered message_of(const char* role, std::string text) { return {{"role", role}, {"content", std::move(text)}}; }

// "...\n\nHuman: ...\n\nAssistant: ..." as messages; what stands before the first turn is the system's.
Ordered messages_of_turns(std::string_view text) {
  Ordered messages = Ordered::array();
  const char* role = "system";
  while (true) {
    const size_t next = std::min({text.find(kHuman), text.find(kAssistant), text.size()});
    if (std::string said = stripped(text.substr(0, next)); !said.empty()) messages.push_back(message_of(role, said));
    if (next == text.size()) return messages;
    const bool human = text.substr(next).starts_with(kHuman);
    role = human ? "user" : "assistant";
    text.remove_prefix(next + (human ? kHuman : kAssistant).size());
  }
}

// Reads one row.
class RowParts {
 public:
  RowParts(const JsonlRow& row, const RowEncoder::Spec& spec)
      : line_(row), row_(Ordered::parse(row.text)), spec_(spec) {}

  Said read() const {
    Said s;
    for (const std::string& name : spec_.completions) s.fields.push_back(field_of(name));
    for (const std::string& field : s.fields) s.completions.push_back(said(field));
    const auto& c = s.completions;
    const bool is_last_message = c.size() == 1 && s.fields[0] == prompt_field();
    if (is_last_message || std::any_of(c.begin(), c.end(), is_conversation))
      cut_conversations(s);
    else if (const std::string field = prompt_field(); !field.empty())
      s.prompt = said(field);
    else if (given(row_, "instruction") != nullptr || given(row_, "question") != nullptr)
      s.prompt = instruction();
    else if (c.size() > 1 && std::all_of(c.begin(), c.end(), [](const Ordered& one) { return one.is_string(); }))
      cut_turns(s);
    else
      fail_missing("prompt");
    return s;
  }
  // The first message, where the prompt has no other.
  void add_system_to(Said& s) const {
    try {
      add_system(row_, s.prompt);
    } catch (const Error& e) { throw FileError(fmt::format("{}: {}", line_.where, e.what())); }
  }
  // What belongs to a conversation beside its messages.
  void add_beside(Ordered& conversation) const {
    for (const char* also : {"tools", "documents", "chat_template_kwargs"})
      if (const Ordered* found = given(row_, also)) conversation[also] = *found;
  }

 private:
  [[noreturn]] void fail(const std::string& field, const std::string& why) const {
    throw FileError(fmt::format("{}: {}: {}", line_.where, in_quotes(field), why));
  }
  [[noreturn]] void fail_empty(const std::string& field, const std::string& why) const {
    throw EmptyPartError(fmt::format("{}: {}: {}", line_.where, in_quotes(field), why));
  }
  [[noreturn]] void fail_missing(const std::string& field) const {
    fail(field, fmt::format("is missing; a row has a prompt and {}; there are {}",
                            fmt::join(spec_.completions, " and "), key_list(line_.json)));
  }

  // The conversation of a row; empty: it has none.
  std::string prompt_field() const {
    for (const char* name : {"prompt", "conversations", "messages", "conversation"})
      if (given(row_, name) != nullptr) return name;
    return "";
  }
  // Where a row has a completion. A judged one may be the last message of a conversation.
  std::string field_of(const std::string& completion) const {
    for (const std::string& name : {completion, completion + "_messages"})
      if (given(row_, name) != nullptr) return name;
    if (spec_.completions.size() > 1) return completion;
    return given(row_, "output") != nullptr ? "output" : given(row_, "prompt") != nullptr ? completion : prompt_field();
  }

  Ordered said(const std::string& field) const {
    const Ordered* found = given(row_, field);
    if (found == nullptr) fail_missing(field.empty() ? spec_.completions.front() : field);
    const Ordered list = found->is_object() ? Ordered::array({*found}) : *found;
    const bool are_messages =
        list.is_array() && std::all_of(list.begin(), list.end(), [](const Ordered& m) { return m.is_object(); });
    if (list.is_string() ? stripped(list.get_ref<const std::string&>()).empty() : are_messages && list.empty())
      fail_empty(field, "is empty; write what it says, or leave the row out");
    if (!list.is_string() && !are_messages)
      fail(field, "expected a text, a message or a list of messages, got " + shown(nlohmann::json(list)));
    if (are_messages)  // so that a bad one is named by this field, whatever it is rendered with
      chat::read_conversation(list.dump(), fmt::format("{}: {}", line_.where, in_quotes(field)));
    return list;
  }

  // The prompt is what whole conversations have in common; if they are equal, all but the last message.
  void cut_conversations(Said& s) const {
    size_t shortest = SIZE_MAX, common = 0;
    for (size_t i = 0; i < s.completions.size(); ++i) {
      if (!is_conversation(s.completions[i]))
        fail(s.fields[i],
             "is no whole conversation, which the system or the user begins; write all completions of the row in one "
             "way");
      shortest = std::min(shortest, s.completions[i].size());
    }
    const Ordered first = s.completions[0];
    const auto same = [&](const Ordered& c) { return c[common] == first[common]; };
    while (common + 1 < shortest && std::all_of(s.completions.begin(), s.completions.end(), same)) ++common;
    s.prompt = Ordered(first.begin(), first.begin() + ptrdiff_t(common));
    for (size_t i = 0; i < s.completions.size(); ++i) {
      Ordered& c = s.completions[i];
      if (common == 0 || !is_assistant(c[common]))
        fail(s.fields[i], fmt::format("message {}: is not the assistant's, and what all completions begin with ends "
                                      "before it; completions of a row have one prompt",
                                      common + 1));
      c.erase(c.begin(), c.begin() + ptrdiff_t(common));
    }
    refuse_other_prompt(s);
  }
  // A prompt beside conversations is what they begin with, or one of their messages, as UltraFeedback has it.
  void refuse_other_prompt(const Said& s) const {
    const Ordered* prompt = given(row_, "prompt");
    const auto says = [&](const Ordered& m) { return given(m, "content") != nullptr && m["content"] == *prompt; };
    if (prompt != nullptr && *prompt != s.prompt && std::none_of(s.prompt.begin(), s.prompt.end(), says))
      fail("prompt", "is not in the conversation that the completions begin with; leave one of them out");
  }

  // Two texts with turns: what they have in common up to the last "\n\nAssistant:" is the prompt.
  void cut_turns(Said& s) const {
    const std::string a = s.completions[0], b = s.completions[1];
    const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
    const size_t mark = a.substr(0, size_t(differ - a.begin())).rfind(kAssistant);
    if (mark == a.npos) fail_missing("prompt");
    const size_t end = mark + kAssistant.size();
    s.are_turns = true;
    s.prompt = a.substr(0, end);
    s.completions = {a.substr(end), b.substr(end)};
    for (size_t i = 0; i < 2; ++i)
      if (stripped(s.completions[i].get_ref<const std::string&>()).empty())
        fail_empty(s.fields[i], "is empty behind the prompt; write what it says, or leave the row out");
  }

  // Alpaca's and Orca's.
  Ordered instruction() const {
    const char* text = given(row_, "instruction") == nullptr ? "{question}"
                       : spec_.chat_template == "alpaca"     ? "{instruction}\n\n### Input:\n{input?}"
                                                             : "{instruction}\n\n{input?}";
    try {
      return Ordered::array({message_of("user", RowTemplate(text).fill(line_.json))});
    } catch (const Error& e) { throw FileError(fmt::format("{}: {}", line_.where, e.what())); }
  }

  const JsonlRow& line_;
  const Ordered row_;
  const RowEncoder::Spec& spec_;
};

}  // namespace

void append_messages(const Ordered& said, const char* role, Ordered& messages) {
  if (said.is_string()) return messages.push_back(message_of(role, said));
  const bool counts = role == std::string_view("assistant");
  for (Ordered message : said) {
    if (!counts && message.is_object()) message["weight"] = 0;  // the completion alone is trained on
    messages.push_back(std::move(message));
  }
}

void add_system(const Ordered& row, Ordered& messages) {
  const Ordered* system = given(row, "system");
  if (system == nullptr) return;
  if (!system->is_string())
    throw Error(fmt::format("\"system\": expected a text, got {}", shown(nlohmann::json(*system))));
  if (stripped(system->get_ref<const std::string&>()).empty()) return;
  if (messages.is_string()) messages = Ordered::array({message_of("user", messages)});
  if (!messages.is_array() || (!messages.empty() && is_of_system(messages.front()))) return;
  messages.insert(messages.begin(), message_of("system", *system));
}

// The completion is [begin, end); a row that counts nothing has none.
struct RowEncoder::Tokens {
  std::vector<int32_t> ids;
  size_t begin = 0, end = 0;
  bool is_one_piece = true;

  static Tokens masked(std::vector<int32_t> ids, const std::vector<uint8_t>& mask) {
    const auto first = std::find(mask.begin(), mask.end(), uint8_t(1));
    const auto last = std::find(mask.rbegin(), mask.rend(), uint8_t(1)).base();
    if (first == mask.end()) return {};
    return {.ids = std::move(ids),
            .begin = size_t(first - mask.begin()),
            .end = size_t(last - mask.begin()),
            .is_one_piece = std::find(first, last, uint8_t(0)) == last};
  }
  void check(const std::string& where) const {
    if (end == 0)
      throw EmptyPartError(where + ": is empty: the assistant says nothing that counts; leave the row out, or say it");
    if (!is_one_piece)
      throw FileError(where +
                      ": is not one piece: other messages stand among those of the assistant; leave the row out, or "
                      "end it before them");
  }
};

RowEncoder::RowEncoder(std::unique_ptr<Tokenizer> tokenizer, Spec spec)
    : tokenizer_(std::move(tokenizer)), spec_(std::move(spec)) {
  options_.now = chat::day_named(TokensConfig().template_date, "tokens.template_date");
  why_no_chat_ = "data.chat_template = \"none\" is for texts alone; name a template";
  if (spec_.chat_template == "none") return;
  const chat::TemplateChoice choice{.file = spec_.chat_template, .name = {}, .option = "data.chat_template"};
  chat_templates_ = chat::chat_template_texts(spec_.tokenizer, choice);
  try {
    chat_ = chat::read_chat_template(spec_.tokenizer, choice);
  } catch (const FileError& e) {
    if (!chat_templates_.empty()) throw;
    why_no_chat_ = e.what();
  }
}

EncodedRow RowEncoder::encode(const JsonlRow& row) const {
  const RowParts parts(row, spec_);
  Said said = parts.read();
  if (said.are_turns && chat_) {
    said.prompt = messages_of_turns(said.prompt.get_ref<const std::string&>());
    for (Ordered& c : said.completions) c = messages_of_turns(std::string(kAssistant) + c.get<std::string>());
  }
  parts.add_system_to(said);
  std::vector<Tokens> all;
  for (size_t i = 0; i < said.completions.size(); ++i) {
    const std::string where = fmt::format("{}: {}", row.where, in_quotes(said.fields[i]));
    Ordered conversation{{"messages", Ordered::array()}};
    append_messages(said.prompt, "user", conversation["messages"]);
    append_messages(said.completions[i], "assistant", conversation["messages"]);
    if (!said.are_texts()) parts.add_beside(conversation);
    try {
      all.push_back(said.are_texts() && !chat_ ? tokens_of_texts(said.prompt, said.completions[i])
                                               : tokens_of_messages(conversation, where));
    } catch (const FileError&) { throw; } catch (const NotBuilt&) {
      throw;
    } catch (const Error& e) { throw FileError(fmt::format("{}: {}", where, e.what())); }
    all.back().check(where);
  }
  const std::vector<int32_t>& first = all[0].ids;
  size_t prompt = all[0].begin;
  for (const Tokens& t : all) {
    const auto end = t.ids.begin() + ptrdiff_t(std::min(prompt, t.begin));
    prompt = size_t(std::mismatch(t.ids.begin(), end, first.begin()).first - t.ids.begin());
  }
  if (prompt == 0) throw FileError(fmt::format("{}: \"prompt\": has no token; it needs at least one", row.where));
  EncodedRow out{.prompt = {first.begin(), first.begin() + ptrdiff_t(prompt)}, .completions = {}};
  for (const Tokens& t : all)
    out.completions.emplace_back(t.ids.begin() + ptrdiff_t(prompt), t.ids.begin() + ptrdiff_t(t.end));
  return out;
}

// As a document, which ends with the completion.
RowEncoder::Tokens RowEncoder::tokens_of_texts(const std::string& prompt, const std::string& completion) const {
  const std::string text = prompt + completion;
  std::vector<int32_t> ids;
  tokenizer_->encode(text, ids);
  std::vector<uint8_t> mask =
      chat::token_mask(*tokenizer_, text, ids, {{prompt.size(), text.size()}}, SpecialText::kText);
  const std::vector<int32_t> beginning = tokenizer_->beginning();
  ids.insert(ids.begin(), beginning.begin(), beginning.end());
  mask.insert(mask.begin(), beginning.size(), 0);
  if (tokenizer_->end_of_document() >= 0) {
    ids.push_back(tokenizer_->end_of_document());
    mask.push_back(1);
  }
  return Tokens::masked(std::move(ids), mask);
}

RowEncoder::Tokens RowEncoder::tokens_of_messages(const Ordered& conversation, const std::string& where) const {
  if (!chat_) throw FileError(fmt::format("{}: has messages, and {}", where, why_no_chat_));
  auto encoded =
      chat::encode_conversation(*chat_, *tokenizer_, chat::read_conversation(conversation.dump(), where), options_);
  return Tokens::masked(std::move(encoded.ids), encoded.mask);
}

}  // namespace weft
