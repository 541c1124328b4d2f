// Conversations as a model sees them: rendered, tokenized, and with a mask of what the assistant said. For supervised
// training, encode_conversation() is all that is needed.
#pragma once
#include <ctime>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weft/chat/template.h"
#include "weft/tokenize/tokenizer.h"

namespace weft::chat {

struct Conversation {
  Value messages;            // a list of objects with a "role"
  Value tools{};             // a list; undefined: none
  Value documents{};         // the same
  Value variables{nullptr};  // others of the template, by name: a dictionary or none
};
// A list of messages, or an object with `messages_key` ("a.b": "b" in "a") and what else a Conversation has
// ("chat_template_kwargs" are its variables; other keys are left alone; tools may be a text). ShareGPT's messages,
// {"from": "human", "value": ...}, get roles and contents (read_conversation.cpp).
// Throws FileError, beginning with `source`, also for parts of a content that should be texts and are none, and for
// weights of messages that are neither 0 nor 1.
Conversation read_conversation(std::string_view json, std::string_view source,
                               std::string_view messages_key = "messages");

// Whether a message of the assistant counts in training: it has text or tool calls, and none of "weight" (OpenAI),
// "train" (Axolotl) and "loss_weight" is 0 or false.
bool is_trained(const Value& message);
// What a message says: its content, or the texts among its parts with a line feed between them.
std::string text_in(const Value& message);
// Its calls of functions as JSON, a line each.
std::string calls_in(const Value& message);
// The messages with calls of functions at the end of their contents in the place of "tool_calls".
Value with_written_calls(const Value& messages);
// The messages with texts in the place of lists of parts. Throws Error where a part is no text.
Value with_joined_parts(const Value& messages);

struct RenderOptions {
  bool add_generation_prompt = false;  // ends with what comes before the assistant's next words
  std::tm now{};                       // of strftime_now
};

// "2024-07-26". Throws ConfigError, beginning with `name`.
std::tm day_named(const std::string& date, const std::string& name);

// Which template: see read_chat_template().
struct TemplateChoice {
  std::filesystem::path file{};  // or the name of a built-in one; empty: of the tokenizer's folder
  std::string name{};            // empty: "default", or "tool_use" for a conversation with tools where there is one
  std::string option = "--template";  // by which the user gives `file`, for errors
};

// Immutable; any thread may use it. A template sees contents that are lists of parts as they are if it shows their
// texts, else joined (with_joined_parts), and calls of functions likewise (with_written_calls).
class ChatTemplate {
 public:
  ChatTemplate(std::map<std::string, Template> templates, Value special_tokens, std::string name);

  // Throws Error as Template::render() does.
  std::string render(const Conversation& conversation, const RenderOptions& options) const;

  struct Masked {
    std::string text;
    std::vector<Span> assistant;  // what the assistant said, in order, with the marks that end it
  };
  // By the template's {% generation %} where it has that; else what each message of the assistant adds to the
  // conversation before it, rendered with its generation prompt. Messages that are not trained (is_trained) are left
  // out. Throws Error where a message is not one piece of the whole, and where the template leaves out what a role
  // says, the tools or the documents.
  Masked render_masked(const Conversation& conversation, const RenderOptions& options) const;

  // Of "tools" and "documents" those that the conversation has and of which the template shows nothing. Throws Error as
  // render() does.
  std::vector<std::string> left_out(const Conversation& conversation, const RenderOptions& options) const;

 private:
  bool takes_parts(const Template& one) const;
  bool takes_calls(const Template& one) const;
  std::string chosen(const Conversation& conversation) const;  // its name
  Dict variables_of(const Conversation& conversation, const RenderOptions& options) const;
  Rendering rendered(const Conversation& conversation, const RenderOptions& options) const;
  void refuse_left_out(const Conversation& c, const std::string& whole, const RenderOptions& o) const;
  std::vector<std::string> left_out(const Conversation& c, const std::string& whole, const RenderOptions& o) const;
  std::vector<Span> assistant_spans(const Conversation& c, const std::string& whole, const RenderOptions& o) const;

  std::map<std::string, Template> templates_;
  std::set<std::string> with_parts_, with_calls_;  // names of those that take contents in parts, and calls
  Value special_tokens_;                           // "bos_token": "<s>", ...
  std::string name_;
};

// The template that belongs to a tokenizer (a path as for read_tokenizer): chat_template.jinja of its folder,
// chat_template.json, or chat_template in tokenizer_config.json: one, or several with names. Special tokens are those
// of tokenizer_config.json and special_tokens_map.json. Throws FileError where there is none, or where it is broken.
ChatTemplate read_chat_template(const std::filesystem::path& tokenizer, const TemplateChoice& choice = {});
// The texts that it chooses among, by name; empty where there is none. Throws FileError where a file cannot be read.
std::map<std::string, std::string> chat_template_texts(const std::filesystem::path& tokenizer,
                                                       const TemplateChoice& choice = {});

struct TokenizedConversation {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;  // 1: the assistant said some of this token; as many as ids
};
// Special tokens in the rendering are marks; nothing is put around it. Throws Error where the mask is not known.
TokenizedConversation encode_conversation(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                          const Conversation& conversation, const RenderOptions& options = {});

// One for each id of `text`, 1 where a token has bytes of a span (which are in order). `special` as the ids were made.
// Throws Error where the tokenizer does not tell where tokens begin.
std::vector<uint8_t> token_mask(const Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids,
                                const std::vector<Span>& spans, SpecialText special = SpecialText::kParsed);

}  // namespace weft::chat
