#include "weft/apps/chat_prompts.h"

#include <ctime>

#include "weft/base/error.h"
#include "weft/train/end_tokens.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Where the template and its special tokens stand; where there is none, what an error is to name.
fs::path place_of_template(const ChatPrompts::Spec& spec, const HfConfig& config) {
  if (!spec.chat_template.empty()) return spec.text_of;
  std::vector<fs::path> places{spec.text_of, spec.model};
  if (config.adapter) places.push_back(base_of_adapter(spec.model, *config.adapter));
  for (const fs::path& place : places)
    if (!chat::chat_template_texts(place).empty()) return place;
  return spec.model;
}

std::tm today() {
  std::tm day{};
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &day);
  return day;
}

chat::Value message_by(const char* role, const std::string& content) {
  chat::Value message = chat::make_dict();
  message.dict().set("role", role);
  message.dict().set("content", content);
  return message;
}

}  // namespace

ChatPrompts::ChatPrompts(Spec spec, const HfConfig& config, const Tokenizer& tokenizer)
    : spec_(std::move(spec)),
      tokenizer_(tokenizer),
      template_(chat::read_chat_template(place_of_template(spec_, config), {.file = spec_.chat_template})),
      options_{.add_generation_prompt = true, .now = today()},
      end_(chat::end_of_turn(template_, tokenizer, {.now = options_.now})) {
  for (const int32_t token : end_tokens_of(spec_.model, config, tokenizer)) end_.tokens.push_back(token);
}

Tokens ChatPrompts::ids_of(const std::vector<std::string>& turns) const {
  chat::Items messages;
  if (!spec_.system.empty()) messages.push_back(message_by("system", spec_.system));
  for (size_t i = 0; i < turns.size(); ++i) messages.push_back(message_by(i % 2 == 0 ? "user" : "assistant", turns[i]));
  const std::string text = template_.render({.messages = chat::make_list(std::move(messages))}, options_);
  Tokens ids;
  tokenizer_.encode(text, ids, SpecialText::kParsed);
  if (ids.empty()) throw ConfigError("the chat template makes nothing of the conversation: give another by --template");
  return ids;
}

TextEnds take_token(chat::Reply& reply, int32_t token) {
  using Took = chat::Reply::Took;
  const Took took = reply.take(token);
  return took == Took::part ? TextEnds::no : took == Took::end ? TextEnds::before_token : TextEnds::with_token;
}

}  // namespace weft
