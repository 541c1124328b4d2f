#include "weft/chat/turn_end.h"

#include <algorithm>
#include <utility>

#include "weft/base/error.h"

namespace weft::chat {
namespace {

constexpr const char* kBlankBytes = " \t\r\n";
constexpr std::string_view kAsked = "weft-asks", kSaid = "weft-says", kNext = "weft-asks-again";

Value turn_by(std::string_view role, std::string_view content) {
  Value message = make_dict();
  message.dict().set("role", role);
  message.dict().set("content", content);
  return message;
}

// What the template writes between the assistant's message and the end, or the user's next message; empty where it
// takes no such conversation.
std::string behind_reply(const ChatTemplate& chat, bool asks_again, const RenderOptions& options) {
  Items messages{turn_by("user", kAsked), turn_by("assistant", kSaid)};
  if (asks_again) messages.push_back(turn_by("user", kNext));
  try {
    std::string text = chat.render({.messages = make_list(std::move(messages))}, options);
    const size_t said = text.rfind(kSaid), next = asks_again ? text.rfind(kNext) : text.size();
    if (said == text.npos || next == text.npos || next < said) return "";
    return text.substr(said + kSaid.size(), next - said - kSaid.size());
  } catch (const Error&) { return ""; }
}

bool is_all_blank(std::string_view text) { return text.find_first_not_of(kBlankBytes) == text.npos; }

bool is_special(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.decode({&id, 1}, Tokenizer::Specials::kHidden).empty() &&
         !tokenizer.decode({&id, 1}, Tokenizer::Specials::kShown).empty();
}

// The special token that `text` begins with, behind blanks; -1: there is none.
int32_t special_at_front(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids, SpecialText::kParsed);
  for (const int32_t id : ids) {
    if (is_special(tokenizer, id)) return id;
    if (!is_all_blank(tokenizer.decode({&id, 1}, Tokenizer::Specials::kShown))) return -1;
  }
  return -1;
}

// The first line of `text`; of one that begins with "<...>", that.
std::string first_words(const std::string& text) {
  std::string line = text.substr(0, text.find_first_of("\r\n"));
  if (const size_t close = line.find('>'); line.starts_with('<') && close != line.npos) line.resize(close + 1);
  line.resize(line.find_last_not_of(kBlankBytes) + 1);
  return line;
}

}  // namespace

TurnEnd end_of_turn(const ChatTemplate& chat, const Tokenizer& tokenizer, const RenderOptions& options) {
  for (const bool asks_again : {false, true}) {
    const std::string behind = behind_reply(chat, asks_again, options);
    if (is_all_blank(behind)) continue;
    const size_t first = behind.find_first_not_of(kBlankBytes);
    TurnEnd end{.blanks = behind.substr(0, first)};
    if (const int32_t token = special_at_front(tokenizer, behind); token >= 0) {
      end.tokens.push_back(token);
      return end;
    }
    end.text = first_words(behind.substr(first));
    // "User:" may stand within a reply, "\nUser:" hardly.
    if (asks_again) end.text = std::exchange(end.blanks, "") + end.text;
    return end;
  }
  return {};
}

Reply::Reply(const Tokenizer& tokenizer, const TurnEnd& end, const std::vector<int32_t>& prompt)
    : end_(end), decoder_(tokenizer) {
  decoder_.follow(prompt);
}

Reply::Took Reply::take(int32_t token) {
  if (std::find(end_.tokens.begin(), end_.tokens.end(), token) != end_.tokens.end()) {
    end();
    return Took::end;
  }
  const size_t from = certain();
  text_ += decoder_.next(token);
  const size_t at = end_.text.empty() ? text_.npos : text_.find(end_.text, from);
  if (at == text_.npos) return Took::part;
  text_.resize(at);
  end();
  return Took::end_of_text;
}

void Reply::end() {
  if (text_.ends_with(end_.blanks)) text_.resize(text_.size() - end_.blanks.size());
  ended_ = true;
}

// How much of the text is neither a beginning of the end nor the blanks before it.
size_t Reply::certain() const {
  if (ended_) return text_.size();
  const std::string whole = end_.blanks + end_.text;
  for (size_t n = std::min(whole.size(), text_.size() - told_); n > 0; --n) {
    const std::string_view last = std::string_view(text_).substr(text_.size() - n);
    if (whole.starts_with(last) || end_.text.starts_with(last)) return text_.size() - n;
  }
  return text_.size();
}

std::string Reply::news() {
  const size_t from = std::exchange(told_, certain());
  return text_.substr(from, told_ - from);
}

std::string Reply::rest() {
  const size_t from = std::exchange(told_, text_.size());
  return text_.substr(from);
}

}  // namespace weft::chat
