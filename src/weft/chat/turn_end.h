// Where an assistant's reply ends, as its tokens come.
#pragma once
#include <string>
#include <vector>

#include "weft/chat/conversation.h"
#include "weft/tokenize/tokenizer.h"

namespace weft::chat {

// What ends a turn of the assistant. It is no part of the reply.
struct TurnEnd {
  std::vector<int32_t> tokens = {};  // any of these
  std::string text = {};             // or this text, where there is no such token; empty: none
  std::string blanks = {};           // what the template writes between the reply and its end, such as a line feed
};

// What the template writes behind an assistant's message: the special token that stands there first; or, where the
// tokenizer takes it for plain text, the first "<...>" or line. Of a template that writes nothing behind the last
// message, what begins the user's next one. Neither token nor text: the template has none of these, or takes no such
// conversation.
TurnEnd end_of_turn(const ChatTemplate& chat, const Tokenizer& tokenizer, const RenderOptions& options = {});

// A reply in the making. `tokenizer` and `end` must outlive it.
class Reply {
 public:
  // `prompt`: the ids that come before it.
  Reply(const Tokenizer& tokenizer, const TurnEnd& end, const std::vector<int32_t>& prompt);
  // Takes the next token of a reply that has not ended. A token that ends it is no part of it; of the token that
  // completes the text, what stands before the text is.
  enum class Took { part, end, end_of_text };
  Took take(int32_t token);
  // Ends it as the end token does.
  void end();
  bool has_ended() const { return ended_; }
  // What has come since the last call, less what may turn out to be the end. A reply that has ended has no such rest.
  std::string news();
  // All that has come since: no more tokens will, though the reply has not ended.
  std::string rest();
  const std::string& text() const { return text_; }

 private:
  size_t certain() const;

  const TurnEnd& end_;
  IncrementalDecoder decoder_;
  std::string text_;
  size_t told_ = 0;  // bytes that news() has returned
  bool ended_ = false;
};

}  // namespace weft::chat
