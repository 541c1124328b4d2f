// From the vocabulary of a GGUF file to the files of a Hugging Face folder.
#include <algorithm>
#include <map>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tokenize/companions.h"
#include "weft/tokenize/gguf_vocabulary.h"
#include "weft/tokenize/sentencepiece_writer.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using Vocab = GgufVocabulary;

// Tokens but for the unused ones at the end, by which a vocabulary is as large as the model's table.
size_t num_used(const Vocab& v) {
  size_t used = v.tokens.size();
  while (used > 0 && v.kinds[used - 1] == Vocab::kUnused) --used;
  return used;
}

Json tokenizer_config_of(const Vocab& v) {
  Json config{{"add_bos_token", v.add_beginning}, {"add_eos_token", v.add_end}};
  if (v.beginning >= 0) config["bos_token"] = v.tokens[size_t(v.beginning)];
  if (v.end >= 0) config["eos_token"] = v.tokens[size_t(v.end)];
  if (!v.chat_template.empty()) config["chat_template"] = v.chat_template;
  return config;
}

// A template by which the tokens stand around a text that the vocabulary says.
Json surroundings_of(const Vocab& v) {
  Json single = Json::array(), specials = Json::object();
  const auto add = [&](bool wanted, int32_t id) {
    if (!wanted) return;
    const std::string& token = v.tokens[size_t(id)];
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    specials[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  };
  add(v.add_beginning, v.beginning);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(v.add_end, v.end);
  if (specials.empty()) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", Json::array()}, {"special_tokens", specials}};
}

Json split_of(const GgufSplit& split) {
  Json steps = Json::array();
  for (const std::string& expression : split.expressions)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

std::string tokenizer_json_of(const Vocab& v, const std::string& source) {
  const auto split = gguf_split(v.pre);
  if (!split)
    throw FileError(fmt::format(
        "{}: \"tokenizer.ggml.pre\": weft does not know how {} splits text; it knows gpt-2, llama-bpe, dbrx, "
        "qwen2, gpt-4o, deepseek-coder and smollm; give the model's tokenizer.json by --tokenizer, or data.tokenizer "
        "in a recipe",
        source, in_quotes(v.pre)));
  Json vocab = Json::object();
  std::vector<AddedToken> added;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const bool control = v.kinds[id] == Vocab::kControl;
    if (control || v.kinds[id] == Vocab::kUserDefined)
      added.push_back({.id = int32_t(id), .content = v.tokens[id], .special = control});
    else if (v.kinds[id] != Vocab::kUnused && !vocab.emplace(v.tokens[id], id).second)
      throw FileError(fmt::format("{}: \"tokenizer.ggml.tokens\": {} is there twice", source, in_quotes(v.tokens[id])));
  }
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  Json whole{
      {"version", "1.0"},
      {"added_tokens", as_json(added)},
      {"normalizer", split->composes ? Json{{"type", "NFC"}} : Json()},
      {"pre_tokenizer", split_of(*split)},
      {"post_processor", surroundings_of(v)},
      {"decoder", bytes},
      {"model",
       {{"type", "BPE"}, {"ignore_merges", split->whole_first}, {"vocab", std::move(vocab)}, {"merges", v.merges}}}};
  return whole.dump() + "\n";
}

std::string sentencepiece_of(const Vocab& v) {
  SentencePieceSpec spec;
  spec.model_type = SentencePieceSpec::kBpe;
  spec.adds_dummy_prefix = v.add_space_prefix;
  spec.removes_extra_spaces = false;
  for (size_t id = 0; id < num_used(v); ++id) {
    const int32_t kind = std::clamp<int32_t>(v.kinds[id], Vocab::kNormal, Vocab::kByte);
    spec.byte_fallback = spec.byte_fallback || kind == Vocab::kByte;
    spec.pieces.push_back({v.tokens[id], v.scores[id], SentencePieceSpec::Kind(kind)});
  }
  return write_sentencepiece(spec, v.beginning, v.end);
}

}  // namespace

std::vector<TokenizerFile> tokenizer_files_of(const Vocab& v, const std::string& source) {
  if (v.model.empty()) return {};
  const bool pairs = v.model == "gpt2";
  return {{source, pairs ? "tokenizer.json" : "tokenizer.model",
           pairs ? tokenizer_json_of(v, source) : sentencepiece_of(v)},
          {source, "tokenizer_config.json", tokenizer_config_of(v).dump(2) + "\n"}};
}

}  // namespace weft
