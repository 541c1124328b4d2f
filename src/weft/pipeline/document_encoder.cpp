#include "weft/pipeline/document_encoder.h"

#include <algorithm>

#include "weft/base/hashing.h"
#include "weft/chat/built_in_templates.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// A mask of tokens to one of positions: a position counts where the token after it does.
std::vector<uint8_t> of_positions(std::vector<uint8_t> tokens) {
  if (tokens.empty()) return tokens;
  tokens.erase(tokens.begin());
  tokens.push_back(0);
  return tokens;
}

}  // namespace

DocumentEncoder::DocumentEncoder(const TokensConfig& config, bool has_conversations)
    : config_(config), tokenizer_(read_named("tokens.tokenizer", [&] { return read_tokenizer(config.tokenizer); })) {
  if (!has_conversations) return;
  options_.now = chat::day_named(config.template_date, "tokens.template_date");
  const chat::TemplateChoice choice{.file = config.chat_template, .name = {}, .option = "tokens.chat_template"};
  chat_ = read_named("tokens.chat_template", [&] { return chat::read_chat_template(config.tokenizer, choice); });
  chat_templates_ = chat::chat_template_texts(config.tokenizer, choice);
}

nlohmann::json DocumentEncoder::parameters() const {
  nlohmann::json parameters{{"tokenizer", tokenizer_->fingerprint()}};
  if (!chat_) return parameters;
  const fs::path tokenizer = config_.tokenizer;
  const fs::path folder = fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path();
  nlohmann::json& hashes = parameters["chat_template"];
  if (!config_.chat_template.empty()) {
    const auto* built_in = chat::built_in_template(config_.chat_template);
    const bool is_file = built_in == nullptr || fs::exists(config_.chat_template);
    hashes["template"] = is_file ? hash_of_file(config_.chat_template) : to_hex(hash128(built_in->text));
  }
  for (const char* name :
       {"chat_template.jinja", "chat_template.json", "tokenizer_config.json", "special_tokens_map.json"})
    if (config_.tokenizer != "byte" && fs::exists(folder / name)) hashes[name] = hash_of_file(folder / name);
  return parameters;
}

std::optional<Drop> DocumentEncoder::encode(const Document& d, EncodedDocument& out) const {
  if (!d.conversation.empty()) {
    WEFT_CHECK(chat_, "a conversation among texts");
    try {
      auto encoded = chat::encode_conversation(*chat_, *tokenizer_,
                                               chat::read_conversation(d.conversation, d.id.text()), options_);
      out = {std::move(encoded.ids), of_positions(std::move(encoded.mask))};
    } catch (const Error& e) { return Drop{"tokens.chat_template", e.what()}; }
    if (std::count(out.counted.begin(), out.counted.end(), uint8_t(1)) == 0)
      return Drop{"tokens.no_assistant", "the assistant says nothing"};
    return {};
  }
  out.ids = tokenizer_->beginning();
  try {
    tokenizer_->encode(d.text, out.ids);
  } catch (const Error& e) {  // an expression that gives up, a word without a token
    return Drop{"tokens.tokenizer", e.what()};
  }
  if (tokenizer_->end_of_document() >= 0) out.ids.push_back(tokenizer_->end_of_document());
  out.counted.clear();
  if (chat_) out.counted = of_positions(std::vector<uint8_t>(out.ids.size(), 1));
  return {};
}

}  // namespace weft
