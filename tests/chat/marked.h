// Texts of chat templates in which what the assistant said can be seen.
#pragma once
#include <string>

#include "support.h"
#include "weft/chat/conversation.h"

namespace weft::testing {

// A template with this text, whose tokenizer begins texts with "<s>" and ends them with "</s>".
inline chat::ChatTemplate chat_of(const std::string& text) {
  const TempDir dir;
  spill(dir / "chat_template.jinja", text);
  spill(dir / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  return chat::read_chat_template(dir.path());
}

// The text, with what the assistant said in brackets.
inline std::string marked(const chat::ChatTemplate& chat, const chat::Conversation& c) {
  const auto m = chat.render_masked(c, {});
  std::string out;
  size_t at = 0;
  for (const chat::Span& s : m.assistant) {
    out += m.text.substr(at, s.begin - at) + "[" + m.text.substr(s.begin, s.end - s.begin) + "]";
    at = s.end;
  }
  return out + m.text.substr(at);
}

}  // namespace weft::testing
