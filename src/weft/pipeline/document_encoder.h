// From a document to its tokens, and which of them are trained on.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "weft/chat/conversation.h"
#include "weft/pipeline/document.h"
#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/report.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {

struct EncodedDocument {
  std::vector<int32_t> ids;
  // As many as ids, where any source has conversations; else none. 1: the target at this position, which is the token
  // after it, counts: of a conversation, what the assistant said; of a text, all. The last has no target: 0.
  std::vector<uint8_t> counted;
};

// Immutable; any thread may use it.
class DocumentEncoder {
 public:
  // Throws ConfigError that names the key, also where conversations have no template.
  explicit DocumentEncoder(const TokensConfig& config, bool has_conversations);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  bool has_masks() const { return chat_.has_value(); }
  // The texts of the templates of conversations, by name; none without conversations.
  const std::map<std::string, std::string>& chat_templates() const { return chat_templates_; }
  // What its results depend on beside the keys of [tokens], for the stage's manifest.
  nlohmann::json parameters() const;
  // A Drop where the tokenizer cannot encode a text, where the template refuses a conversation, or where what the
  // assistant said in it is not known, or is nothing.
  std::optional<Drop> encode(const Document& document, EncodedDocument& out) const;

 private:
  TokensConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<chat::ChatTemplate> chat_;
  std::map<std::string, std::string> chat_templates_;
  chat::RenderOptions options_;
};

}  // namespace weft
