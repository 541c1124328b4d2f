// What `weft generate --chat` feeds to a model: conversations, as its chat template renders them.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "weft/chat/turn_end.h"
#include "weft/models/hf_config.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/generate_texts.h"

namespace weft {

class ChatPrompts {
 public:
  struct Spec {
    std::filesystem::path model;    // its folder, or GGUF file
    std::filesystem::path text_of;  // the tokenizer, or "byte"
    // A file, or the name of a built-in template. Empty: that beside the tokenizer, else of the model's folder, else of
    // an adapter's base.
    std::string chat_template;
    std::string system;  // what the system says before each conversation; empty: nothing
  };
  // `tokenizer`, which spec.text_of names, must outlive it. Throws FileError where there is no chat template, or where
  // a file is broken.
  ChatPrompts(Spec spec, const HfConfig& config, const Tokenizer& tokenizer);

  // The ids of a conversation up to where the assistant speaks next. `turns`: what the user says, what the assistant
  // has replied, and so on; the last is the user's. Throws Error where the template refuses them.
  Tokens ids_of(const std::vector<std::string>& turns) const;
  const chat::TurnEnd& end() const { return end_; }
  chat::Reply reply_to(const Tokens& prompt) const { return {tokenizer_, end_, prompt}; }

 private:
  const Spec spec_;
  const Tokenizer& tokenizer_;
  const chat::ChatTemplate template_;
  const chat::RenderOptions options_;
  chat::TurnEnd end_;
};

// As generate_texts asks for it, of a token of this reply.
TextEnds take_token(chat::Reply& reply, int32_t token);

}  // namespace weft
