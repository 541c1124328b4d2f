// From rows with the texts of a prompt and its completions to tokens (docs/formats/id_rows.md).
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/chat/conversation.h"
#include "weft/data/id_rows.h"
#include "weft/data/jsonl.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {

// Appends what a prompt or a completion says: a text is a message of this role, a list is messages, which do not count
// in training unless the role is "assistant".
void append_messages(const nlohmann::ordered_json& said, const char* role, nlohmann::ordered_json& messages);

// Puts a row's "system", a text, before its messages: a list, or what the user says. Changes nothing where it is
// missing or blank, or where they begin with a message of the system. Throws Error where it is no text.
void add_system(const nlohmann::ordered_json& row, nlohmann::ordered_json& messages);

// Immutable; any thread may use it.
class RowEncoder {
 public:
  struct Spec {
    std::filesystem::path tokenizer;       // where it is, or "byte": the chat template may be beside it
    std::string chat_template;             // a file, the name of a built-in one, "none"; empty: that of the tokenizer
    std::vector<std::string> completions;  // "chosen", "rejected"; or "completion"
  };
  // Throws FileError for a chat template that is named and not there, or broken.
  RowEncoder(std::unique_ptr<Tokenizer> tokenizer, Spec spec);

  // The completions have the tokens that count in supervised training, the prompt all before them. A token with some of
  // the prompt and some of a completion is of the completions. Throws FileError, beginning with the row's place, for a
  // part that is missing, empty or of a wrong type, and where the template or the tokenizer gives up.
  EncodedRow encode(const JsonlRow& row) const;

  // The texts of the templates that messages are rendered with, by name; may be none.
  const std::map<std::string, std::string>& chat_templates() const { return chat_templates_; }

 private:
  struct Tokens;
  Tokens tokens_of_texts(const std::string& prompt, const std::string& completion) const;
  Tokens tokens_of_messages(const nlohmann::ordered_json& conversation, const std::string& where) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  Spec spec_;
  std::map<std::string, std::string> chat_templates_;
  std::optional<chat::ChatTemplate> chat_;
  std::string why_no_chat_;
  chat::RenderOptions options_;
};

}  // namespace weft
