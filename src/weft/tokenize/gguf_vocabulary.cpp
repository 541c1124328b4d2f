#include "weft/tokenize/gguf_vocabulary.h"

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"
#include "weft/tokenize/model.h"

namespace weft {
namespace {

std::vector<std::string> read_texts(const GgufFields& f, std::string_view key) {
  std::vector<std::string> all;
  for (const std::string_view text : f.texts(key)) {
    if (utf8_error(text) != std::string_view::npos)
      throw FileError(fmt::format("{}: number {} is no UTF-8 text: {}", f.where(key), all.size(), in_quotes(text)));
    all.emplace_back(text);
  }
  return all;
}

// One value for each token.
template <class T, class From>
std::vector<T> of_each_token(const GgufFields& f, std::string_view key, const std::vector<From>& values,
                             size_t tokens) {
  if (values.size() != tokens) f.fail(key, fmt::format("one value for each of the {} tokens", tokens));
  return std::vector<T>(values.begin(), values.end());
}

int32_t read_id(const GgufFields& f, const char* key, size_t tokens) {
  const int64_t id = f.token_id(key);
  if (id >= int64_t(tokens)) f.fail(key, fmt::format("an id below {}", tokens));
  return int32_t(id);
}

}  // namespace

bool has_gguf_vocabulary(const GgufFields& f) {
  const std::string model = f.text("tokenizer.ggml.model", "none");
  return model != "none" && model != "no_vocab";
}

GgufVocabulary read_gguf_vocabulary(const GgufFields& f) {
  GgufVocabulary v;
  if (!has_gguf_vocabulary(f)) return v;
  v.model = f.text("tokenizer.ggml.model");
  if (v.model != "gpt2" && v.model != "llama")
    throw FileError(
        fmt::format("{}: weft reads gpt2 and llama, not {}; give another tokenizer by --tokenizer, or data.tokenizer "
                    "in a recipe",
                    f.where("tokenizer.ggml.model"), in_quotes(v.model)));
  v.tokens = read_texts(f, "tokenizer.ggml.tokens");
  const size_t tokens = v.tokens.size();
  if (tokens > Vocabulary::kMaxTokens)
    f.fail("tokenizer.ggml.tokens", fmt::format("at most {} tokens", Vocabulary::kMaxTokens));
  v.kinds.assign(tokens, GgufVocabulary::kNormal);
  if (f.has("tokenizer.ggml.token_type"))
    v.kinds = of_each_token<int32_t>(f, "tokenizer.ggml.token_type", f.integers("tokenizer.ggml.token_type"), tokens);
  const bool pairs = v.model == "gpt2";
  if (pairs) {
    v.pre = f.text("tokenizer.ggml.pre", "default");
    v.merges = read_texts(f, "tokenizer.ggml.merges");
  } else {
    v.scores = of_each_token<float>(f, "tokenizer.ggml.scores", f.numbers("tokenizer.ggml.scores"), tokens);
    v.add_space_prefix = f.flag("tokenizer.ggml.add_space_prefix", true);
  }
  v.beginning = read_id(f, "tokenizer.ggml.bos_token_id", tokens);
  v.end = read_id(f, "tokenizer.ggml.eos_token_id", tokens);
  v.add_beginning = f.flag("tokenizer.ggml.add_bos_token", !pairs || v.pre == "llama-bpe") && v.beginning >= 0;
  v.add_end = f.flag("tokenizer.ggml.add_eos_token", false) && v.end >= 0;
  v.chat_template = f.text("tokenizer.chat_template", "");
  v.fingerprint = f.text(kGgufFingerprint, "");
  return v;
}

void write_gguf_vocabulary(const GgufVocabulary& v, GgufHead& head) {
  head.text("tokenizer.ggml.model", v.model.empty() ? "none" : v.model);
  if (v.model.empty()) return;
  if (!v.pre.empty()) head.text("tokenizer.ggml.pre", v.pre);
  head.texts("tokenizer.ggml.tokens", v.tokens);
  if (v.model == "llama") head.f32s("tokenizer.ggml.scores", v.scores);
  head.i32s("tokenizer.ggml.token_type", v.kinds);
  if (v.model == "gpt2") head.texts("tokenizer.ggml.merges", v.merges);
  if (v.beginning >= 0) head.u32("tokenizer.ggml.bos_token_id", v.beginning);
  if (v.end >= 0) head.u32("tokenizer.ggml.eos_token_id", v.end);
  for (size_t id = 0; id < v.kinds.size(); ++id)
    if (v.kinds[id] == GgufVocabulary::kUnknown) {
      head.u32("tokenizer.ggml.unknown_token_id", int64_t(id));
      break;
    }
  head.flag("tokenizer.ggml.add_bos_token", v.add_beginning);
  head.flag("tokenizer.ggml.add_eos_token", v.add_end);
  if (v.model == "llama") head.flag("tokenizer.ggml.add_space_prefix", v.add_space_prefix);
  if (!v.chat_template.empty()) head.text("tokenizer.chat_template", v.chat_template);
  if (!v.fingerprint.empty()) head.text(kGgufFingerprint, v.fingerprint);
}

}  // namespace weft
