#include "weft/tokenize/tokenizer_json.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/tokenize/byte_alphabet.h"
#include "weft/tokenize/post_processor.h"
#include "weft/tokenize/read_model.h"

namespace weft {
namespace {

using Json = nlohmann::json;

std::vector<AddedToken> read_added(const JsonFields& f, const std::string& source) {
  std::vector<AddedToken> tokens;
  const Json* list = f.find("added_tokens");
  if (list == nullptr) return tokens;
  if (!list->is_array()) f.fail("added_tokens", "an array");
  for (const auto& entry : *list) {
    const JsonFields t(entry, source, fmt::format("added_tokens[{}].", tokens.size()));
    tokens.push_back({.id = int32_t(t.integer("id", {0, 1 << 24})),
                      .content = t.string("content"),
                      .special = t.flag("special", false),
                      .normalized = t.flag("normalized", !t.flag("special", false)),
                      .single_word = t.flag("single_word", false),
                      .left_strip = t.flag("lstrip", false),
                      .right_strip = t.flag("rstrip", false)});
  }
  return tokens;
}

// Added tokens with one id and two contents would make texts of ids ambiguous.
void check_added(std::vector<AddedToken> tokens, const std::string& source) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (size_t i = 1; i < tokens.size(); ++i)
    if (tokens[i].id == tokens[i - 1].id && tokens[i].content != tokens[i - 1].content)
      throw FileError(fmt::format("{}: added_tokens: the id {} is given to {} and {}", source, tokens[i].id,
                                  in_quotes(tokens[i - 1].content), in_quotes(tokens[i].content)));
}

const Json& part(const Json& json, const char* key) {
  static const Json kNull;
  const auto at = json.find(key);
  return at == json.end() ? kNull : *at;
}

bool is_only_nfc(const Json& normalizer) {
  if (normalizer.is_null()) return false;
  const auto type = normalizer.find("type");
  return type != normalizer.end() && *type == "NFC";
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(const Json& json, const TokenizerJson& file,
                                               const Companions& companions) {
  const std::string& source = file.source;
  const JsonFields f(json, source);
  if (!f.has("model")) throw FileError(fmt::format("{}: \"model\" is missing: no tokenizer.json", source));
  PipelineTokenizer::Parts parts;
  parts.table = file.table;
  parts.added = read_added(f, source);
  check_added(parts.added, source);
  parts.normalizers = read_normalizers(part(json, "normalizer"), source, parts.table);
  parts.only_nfc = is_only_nfc(part(json, "normalizer"));
  parts.pre_tokenizers = read_pre_tokenizers(part(json, "pre_tokenizer"), source, parts.table);
  parts.model = read_token_model(part(json, "model"), source, parts.pre_tokenizers.to_bytes);
  if (parts.pre_tokenizers.to_bytes && !parts.model->of_bytes())
    parts.pre_tokenizers.steps.push_back([alphabet = ByteAlphabet()](Pieces& pieces) {
      for (TextPiece& p : pieces.list) p.text = pieces.keep(alphabet.to_text(p.text));
    });
  parts.decoders = read_decoders(part(json, "decoder"), source);
  Surroundings around = read_post_processor(part(json, "post_processor"), source);
  parts.beginning = std::move(around.before);
  parts.ending = std::move(around.after);
  parts.end_of_document = end_of_document(companions, parts.added);
  if (parts.end_of_document < 0 && !companions.end.empty())
    parts.end_of_document = parts.model->vocabulary().find(companions.end);
  parts.fingerprint = fmt::format("{}-{}", file.fingerprint, parts.end_of_document);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace weft
