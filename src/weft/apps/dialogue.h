// What a model replies to a user: to prompts, or line by line in a conversation.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "weft/apps/chat_prompts.h"

namespace weft {

struct ReplySpec {
  const ChatPrompts& prompts;
  Sampling how;
  int64_t max_tokens = 0;  // of a reply
  int64_t context = 0;     // tokens of a conversation, replies included
  std::string sees;        // "the model was trained on": begins what is said of a context that is full
  bool tells_rates = false;
  std::ostream& out;    // replies, each with a line feed behind it; one that is alone as its tokens come
  std::ostream& notes;  // what else there is to say
};

// Replies to prompts, each by itself. The generator is for these texts. Only the first rank writes. Collective. Blocks.
void reply_to_each(TextGenerator& generator, const ReplySpec& spec, const std::vector<Tokens>& prompts);

class Dialogue {
 public:
  struct Input {
    std::istream& in;           // a message of the user a line; empty lines are passed over
    bool shows_prompt = false;  // in `out`, for a terminal
  };
  // On each rank of a layout. The generator is for one text by turns. Only the first rank reads and writes.
  Dialogue(TextGenerator& generator, const ReplySpec& spec, const Input& input)
      : generator_(generator), s_(spec), input_(input) {}

  // Answers each line of the input, until that ends. False: some message was left out, since with it the conversation
  // would have been too long. Collective. Blocks.
  bool run();

 private:
  std::optional<std::string> wait_message();
  bool answer(const std::string& message);

  TextGenerator& generator_;
  const ReplySpec s_;
  const Input input_;
  std::vector<std::string> turns_;  // what was said so far
  uint64_t choices_ = 0;
};

// "read 12 tokens at 345.6/s, wrote 7 at 89.0/s": `read` of prompts; of texts all but the first token of each, which
// comes with the prompt.
std::string rates_text(int64_t read, const std::vector<Tokens>& texts, const GenerateRequest::Times& times);

}  // namespace weft
