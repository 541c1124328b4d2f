// From a tokenizer's own files to the vocabulary of a GGUF file.
#include <algorithm>

#include "weft/base/error.h"
#include "weft/tokenize/byte_alphabet.h"
#include "weft/tokenize/component.h"
#include "weft/tokenize/gguf_vocabulary.h"
#include "weft/tokenize/model.h"
#include "weft/tokenize/sentencepiece_spec.h"
#include "weft/tokenize/tokenizer_source.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using Vocab = GgufVocabulary;

constexpr float kScoreOfAdded = -1000;  // llama.cpp's, of words that a model was given later

[[noreturn]] void refuse_tokenizer(const std::string& source, const std::string& why) {
  throw ConfigError(fmt::format(
      "{}: {}; the nearest that works: --tokenizer with another tokenizer of the model, or --tokenizer none (a file "
      "without one)",
      source, why));
}

// Grows to where `id` is, with unused tokens.
void grow(Vocab& v, size_t size) {
  for (size_t id = v.tokens.size(); id < size; ++id) {
    v.tokens.push_back(fmt::format("[PAD{}]", id));
    v.kinds.push_back(Vocab::kUnused);
  }
  if (v.model == "llama") v.scores.resize(v.tokens.size(), kScoreOfAdded);
}

void put_token(Vocab& v, int64_t id, const std::string& token, Vocab::Kind kind) {
  grow(v, size_t(id) + 1);
  v.tokens[size_t(id)] = token;
  v.kinds[size_t(id)] = kind;
}

int32_t id_in(const Vocab& v, const std::string& token) {
  const auto at = std::find(v.tokens.begin(), v.tokens.end(), token);
  return token.empty() || at == v.tokens.end() ? -1 : int32_t(at - v.tokens.begin());
}

// Where it can be told from the ids that the tokenizer itself puts around a text.
void put_marks(Vocab& v, const Tokenizer& tokenizer, const Companions& c) {
  const std::vector<int32_t> before = tokenizer.beginning(), after = tokenizer.ending();
  v.beginning = before.empty() ? id_in(v, c.beginning) : before[0];
  v.end = after.empty() ? tokenizer.end_of_document() : after.back();
  if (v.end < 0) v.end = id_in(v, c.end);
  v.add_beginning = !before.empty();
  v.add_end = !after.empty();
}

// The format has no place for what an added token asks of the text beside it.
void add_note_of_neighbours(Vocab& v, const std::vector<AddedToken>& added) {
  constexpr size_t kMostNames = 5;
  std::vector<std::string> names;
  for (const AddedToken& a : added)
    if (a.left_strip || a.right_strip || a.single_word) names.push_back(in_quotes(a.content));
  if (names.empty()) return;
  const size_t others = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - others);
  v.notes.push_back(
      fmt::format("lstrip, rstrip and single_word of the added tokens {}{} are left out, as GGUF has no place for "
                  "them: a text with one of these tokens may get other ids",
                  fmt::join(names, ", "), others == 0 ? "" : fmt::format(" and {} others", others)));
}

// --- tokenizer.json ---

const Json& member_of(const Json& json, const char* key) {
  static const Json kNull;
  const auto at = json.find(key);
  return at == json.end() ? kNull : *at;
}

// How text is split before its bytes are taken, in expressions. Nothing where it does not end in bytes.
std::optional<std::vector<std::string>> expressions_of(const Json& json, const std::string& source) {
  std::vector<std::string> all;
  bool bytes = false;
  for_each_component({member_of(json, "pre_tokenizer"), source + ": pre_tokenizer"}, "pretokenizers",
                     [&](const Component& c) {
                       const JsonFields f = c.fields();
                       const std::string type = c.type();
                       if (type == "ByteLevel") {
                         bytes = true;
                         if (f.flag("add_prefix_space", true))
                           refuse_tokenizer(source, "its text gets a space in front");
                         if (f.flag("use_regex", true)) all.emplace_back(gguf_split("gpt-2")->expressions[0]);
                       } else if (type == "Split" && f.object("pattern").has("Regex")) {
                         all.push_back(f.object("pattern").string("Regex"));
                       } else if (type == "Digits" && f.flag("individual_digits", false)) {
                         all.emplace_back("\\p{N}");
                       } else {
                         all.push_back(type);
                       }
                     });
  return bytes ? std::optional(all) : std::nullopt;
}

void put_tokens(Vocab& v, const Json& model, const std::string& source) {
  const JsonFields f(model, source, "model.");
  for (const auto& [token, id] : f.object("vocab").json().items())
    if (id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < int64_t(Vocabulary::kMaxTokens))
      put_token(v, id.get<int64_t>(), token, Vocab::kNormal);
}

void put_added(Vocab& v, const Json& json, const std::string& source) {
  std::vector<AddedToken> all;
  for (const Json& entry : member_of(json, "added_tokens")) {
    const JsonFields t(entry, source, "added_tokens.");
    const AddedToken token =
        added_token_of(t, int32_t(t.integer("id", {0, int64_t(Vocabulary::kMaxTokens) - 1})), false);
    put_token(v, token.id, token.content, token.is_mark() ? Vocab::kControl : Vocab::kUserDefined);
    all.push_back(token);
  }
  add_note_of_neighbours(v, all);
}

// Pairs of tokens as texts; a blank within a token is written as the format does.
void put_merges(Vocab& v, const Json& model) {
  for (const Json& merge : member_of(model, "merges"))
    v.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                         : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
}

Vocab of_byte_pairs(const TokenizerSource& t, const std::string& source) {
  const Json& model = member_of(t.json, "model");
  const JsonFields f(model, source, "model.");
  const auto expressions = expressions_of(t.json, source);
  if (f.string("type", "BPE") != "BPE" || !expressions)
    refuse_tokenizer(source,
                     "weft writes tokenizers of byte pairs (BPE with ByteLevel) and SentencePiece models of that kind");
  const Json& normalizer = member_of(t.json, "normalizer");
  if (!normalizer.is_null() && JsonFields(normalizer, source, "normalizer.").string("type") != "NFC")
    refuse_tokenizer(source, "it changes text before it splits it (normalizer), which llama.cpp does not");
  Vocab v{.model = "gpt2"};
  put_merges(v, model);
  const auto name_if = [&](bool composes) -> std::string {
    if (v.merges.empty()) return composes ? "" : "gpt-2";  // any split gives the same ids
    return gguf_pre_of({*expressions, f.flag("ignore_merges", false), composes});
  };
  v.pre = name_if(!normalizer.is_null());
  if (v.pre.empty() && !name_if(false).empty())
    refuse_tokenizer(source,
                     fmt::format("it composes characters (normalizer NFC) and splits text as {}: in GGUF only qwen2's "
                                 "split goes with NFC",
                                 name_if(false)));
  if (v.pre.empty())
    refuse_tokenizer(source, "llama.cpp has no name that weft knows for how it splits text (pre_tokenizer)");
  put_tokens(v, model, source);
  put_added(v, t.json, source);
  return v;
}

// --- SentencePiece ---

Vocab of_pieces(const TokenizerSource& t, const std::string& source) {
  const SentencePieceSpec spec = read_sentencepiece_spec(t.sentencepiece);
  if (spec.model_type != SentencePieceSpec::kBpe)
    refuse_tokenizer(source, "it is a SentencePiece model of another kind than BPE, and llama.cpp's \"llama\" is BPE");
  if (!spec.character_map.empty() || spec.removes_extra_spaces || !spec.escapes_spaces || spec.spaces_are_suffixes)
    refuse_tokenizer(source, "it changes characters or spaces (normalizer_spec), which llama.cpp does not");
  Vocab v{.model = "llama"};
  v.add_space_prefix = spec.adds_dummy_prefix;
  for (const auto& piece : spec.pieces) {
    v.tokens.emplace_back(piece.text);
    v.scores.push_back(piece.score);
    v.kinds.push_back(int32_t(piece.kind));
  }
  for (const AddedToken& a : t.companions.added)
    if (size_t(a.id) >= v.tokens.size() || v.tokens[size_t(a.id)] != a.content) {
      put_token(v, a.id, a.content, a.special ? Vocab::kControl : Vocab::kUserDefined);
      v.scores[size_t(a.id)] = kScoreOfAdded;
    }
  add_note_of_neighbours(v, t.companions.added);
  return v;
}

}  // namespace

GgufVocabulary gguf_vocabulary_of(const std::filesystem::path& path, int64_t vocab_size) {
  const std::string source = path.string();
  const TokenizerSource t = read_tokenizer_source(path);
  Vocab v = t.sentencepiece.empty() ? of_byte_pairs(t, source) : of_pieces(t, source);
  put_marks(v, *read_tokenizer(path), t.companions);
  v.fingerprint = tokenizer_fingerprints(path).back();
  if (int64_t(v.tokens.size()) > vocab_size)
    refuse_tokenizer(source, fmt::format("it has {} tokens, the model {}", v.tokens.size(), vocab_size));
  grow(v, size_t(vocab_size));
  return v;
}

}  // namespace weft
