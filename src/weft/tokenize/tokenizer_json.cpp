#include "weft/tokenize/tokenizer_json.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/tokenize/bpe.h"
#include "weft/tokenize/byte_alphabet.h"
#include "weft/tokenize/component.h"
#include "weft/tokenize/unigram.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr JsonFields::IntRange kIds{0, 1 << 24};

// --- what a tokenizer's own rules put around a text ---

struct Surroundings {
  std::vector<int32_t> before, after;
};

// ["[CLS]", 101]
int32_t id_of_pair(const JsonFields& f, std::string_view key) {
  const auto* pair = f.find(key);
  if (pair == nullptr || !pair->is_array() || pair->size() != 2 || !(*pair)[1].is_number_integer())
    throw FileError(fmt::format("{}: expected a token and its id", f.where(key)));
  const auto id = (*pair)[1].get<int64_t>();
  if (id < 0 || id > kIds.max) throw FileError(fmt::format("{}: {} is no id", f.where(key), id));
  return int32_t(id);
}

std::vector<int32_t> ids_of_special(const JsonFields& template_fields, const std::string& name) {
  const JsonFields special = template_fields.object("special_tokens").object(name);
  const auto* ids = special.find("ids");
  if (ids == nullptr || !ids->is_array()) throw FileError(fmt::format("{}: expected an array", special.where("ids")));
  std::vector<int32_t> out;
  for (const auto& id : *ids) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kIds.max)
      throw FileError(fmt::format("{}: expected ids, got {}", special.where("ids"), shown(id)));
    out.push_back(id.get<int32_t>());
  }
  return out;
}

Surroundings read_template(const Component& c) {
  const JsonFields f = c.fields();
  const auto* parts = f.find("single");
  if (parts == nullptr || !parts->is_array()) throw FileError(fmt::format("{}: expected an array", f.where("single")));
  Surroundings s;
  bool text_seen = false;
  for (const auto& part : *parts) {
    const JsonFields fields(part, c.source, "single.");
    if (fields.has("Sequence")) {
      if (text_seen) throw FileError(fmt::format("{}: the text stands in it twice", f.where("single")));
      text_seen = true;
      continue;
    }
    auto& side = text_seen ? s.after : s.before;
    const auto ids = ids_of_special(f, fields.object("SpecialToken").string("id"));
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) throw FileError(fmt::format("{}: the text is missing (Sequence)", f.where("single")));
  return s;
}

// The "post_processor", for one text (not for pairs).
Surroundings read_post_processor(const Json& post_processor, const std::string& source) {
  Surroundings all;
  for_each_component({post_processor, source + ": post_processor"}, "processors", [&](const Component& c) {
    const std::string type = c.type();
    Surroundings s;
    if (type == "TemplateProcessing")
      s = read_template(c);
    else if (type == "BertProcessing" || type == "RobertaProcessing")
      s = {{id_of_pair(c.fields(), "cls")}, {id_of_pair(c.fields(), "sep")}};
    else if (type != "ByteLevel")  // that only moves offsets
      c.fail_unknown("TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
    all.before.insert(all.before.begin(), s.before.begin(), s.before.end());
    all.after.insert(all.after.end(), s.after.begin(), s.after.end());
  });
  return all;
}

// --- the model ---

const Json& member(const JsonFields& f, std::string_view key, bool (Json::*is_kind)() const noexcept,
                   const char* kind) {
  const Json* value = f.find(key);
  if (value == nullptr || !(value->*is_kind)())
    throw FileError(fmt::format("{}: expected {}", f.where(key), value == nullptr ? "it to be there" : kind));
  return *value;
}

// Tokens by name: {"a": 0, ...}, with gaps perhaps.
Vocabulary read_names(const JsonFields& f) {
  const Json& vocab = member(f, "vocab", &Json::is_object, "an object");
  Vocabulary names(f.where("vocab"));
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer())
      throw FileError(fmt::format("{}: {}: expected an id, got {}", f.where("vocab"), in_quotes(token), shown(id)));
    names.add(token, id.get<int64_t>(), vocab.size());
  }
  return names;
}

// The same tokens as the bytes that they stand for; those that stand for none are never found in a text.
Vocabulary as_bytes(const Vocabulary& names, const std::string& source) {
  const ByteAlphabet alphabet;
  Vocabulary bytes(source);
  for (int32_t id = 0; id < names.size(); ++id) {
    if (!names.has(id)) continue;
    const auto token = alphabet.to_bytes(names.token(id));
    bytes.add(token ? *token : names.token(id), id, size_t(names.size()), token.has_value());
  }
  return bytes;
}

int32_t id_of(const JsonFields& f, std::string_view key, const Vocabulary& names) {
  const std::string token = f.string(key, "");
  if (token.empty()) return -1;
  const int32_t id = names.find(token);
  if (id < 0) throw FileError(fmt::format("{}: {} is not in the vocabulary", f.where(key), in_quotes(token)));
  return id;
}

// --- BPE ---

struct Pair {
  std::string left, right;
};

// "a b" or ["a", "b"]
Pair read_pair(const Json& merge, const std::string& where, size_t index) {
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  throw FileError(fmt::format("{}: number {}: expected two tokens, got {}", where, index, shown(merge)));
}

MergeTable read_merges(const JsonFields& f, const Vocabulary& names, const std::string& later_prefix) {
  const Json& merges = member(f, "merges", &Json::is_array, "an array");
  MergeTable table(merges.size());
  const std::string where = f.where("merges");
  uint32_t rank = 0;
  for (const auto& merge : merges) {
    const auto [left, right] = read_pair(merge, where, rank);
    if (left.empty() || right.size() <= later_prefix.size())
      throw FileError(fmt::format("{}: number {}: an empty token", where, rank));
    const std::string result = left + right.substr(later_prefix.size());
    const int32_t ids[] = {names.find(left), names.find(right), names.find(result)};
    for (const auto& [id, token] : {std::pair(ids[0], left), std::pair(ids[1], right), std::pair(ids[2], result)})
      if (id < 0)
        throw FileError(fmt::format("{}: number {}: {} is not in the vocabulary", where, rank, in_quotes(token)));
    table.add(ids[0], ids[1], {.rank = rank++, .result = ids[2]});
  }
  return table;
}

// Whether a '▁' stands in some token behind another character: then a merge may reach over it.
bool merges_over_blanks(const Vocabulary& names) {
  for (int32_t id = 0; id < names.size(); ++id) {
    if (!names.has(id)) continue;
    std::string_view token = names.token(id);
    while (token.starts_with(kBlank)) token.remove_prefix(kBlank.size());
    if (token.find(kBlank) != std::string_view::npos) return true;
  }
  return false;
}

std::unique_ptr<TokenModel> read_bpe(const JsonFields& f, bool of_bytes) {
  if (f.has("dropout") && f.number("dropout", {0, 1}) > 0)
    throw FileError(fmt::format("{}: weft does not leave out merges at random; set it to null", f.where("dropout")));
  const Vocabulary names = read_names(f);
  const std::string later_prefix = f.string("continuing_subword_prefix", "");
  const std::string last_suffix = f.string("end_of_word_suffix", "");
  if (of_bytes && !(later_prefix.empty() && last_suffix.empty())) of_bytes = false;
  Bpe::Spec spec{.vocabulary = of_bytes ? as_bytes(names, f.where("vocab")) : names,
                 .merges = read_merges(f, names, later_prefix),
                 .bytes = of_bytes,
                 .whole_first = f.flag("ignore_merges", false),
                 .byte_fallback = f.flag("byte_fallback", false),
                 .unknown = id_of(f, "unk_token", names),
                 .fuse_unknown = f.flag("fuse_unk", false),
                 .later_prefix = later_prefix,
                 .last_suffix = last_suffix};
  spec.cut_before_blanks = !of_bytes && !spec.whole_first && later_prefix.empty() && last_suffix.empty() &&
                           names.find(kBlank) >= 0 && !merges_over_blanks(names);
  return std::make_unique<Bpe>(std::move(spec));
}

// --- the others ---

std::unique_ptr<TokenModel> read_unigram(const JsonFields& f) {
  const Json& vocab = member(f, "vocab", &Json::is_array, "an array");
  Unigram::Spec spec{.vocabulary = Vocabulary(f.where("vocab")), .scores = {}, .unknown = -1, .byte_fallback = false};
  for (const auto& entry : vocab) {
    const bool good = entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
    if (!good)
      throw FileError(fmt::format("{}: number {}: expected a token and its score, got {}", f.where("vocab"),
                                  spec.scores.size(), shown(entry)));
    spec.vocabulary.add(entry[0].get_ref<const std::string&>(), int64_t(spec.scores.size()), vocab.size());
    spec.scores.push_back(entry[1].get<double>());
  }
  if (f.has("unk_id")) spec.unknown = int32_t(f.integer("unk_id", {0, spec.vocabulary.size() - 1}));
  spec.byte_fallback = f.flag("byte_fallback", false);
  return std::make_unique<Unigram>(std::move(spec));
}

std::unique_ptr<TokenModel> read_word_piece(const JsonFields& f, bool whole) {
  WordPiece::Spec spec{.vocabulary = read_names(f)};
  spec.unknown = id_of(f, "unk_token", spec.vocabulary);
  spec.whole = whole;
  if (!whole) {
    spec.later_prefix = f.string("continuing_subword_prefix", "##");
    spec.max_characters = f.integer("max_input_chars_per_word", {1, 1 << 20}, 100);
  }
  return std::make_unique<WordPiece>(std::move(spec));
}

// Files of before there was a type tell it by what they hold.
std::string type_of(const JsonFields& f) {
  if (f.has("type")) return f.string("type");
  if (f.has("merges")) return "BPE";
  if (f.has("unk_id")) return "Unigram";
  return f.has("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

// `of_bytes`: pieces come as bytes (the pre-tokenizer ends with ByteLevel).
std::unique_ptr<TokenModel> read_token_model(const Json& model, const std::string& source, bool of_bytes) {
  const JsonFields f(model, source, "model.");
  const std::string type = type_of(f);
  if (type == "BPE") return read_bpe(f, of_bytes);
  if (type == "Unigram") return read_unigram(f);
  if (type == "WordPiece" || type == "WordLevel") return read_word_piece(f, type == "WordLevel");
  throw FileError(fmt::format("{}: \"{}\": weft does not know it; it knows BPE, Unigram, WordPiece, WordLevel",
                              f.where("type"), type));
}

// --- the rest ---

std::vector<AddedToken> read_added(const JsonFields& f, const std::string& source) {
  std::vector<AddedToken> tokens;
  const Json* list = f.find("added_tokens");
  if (list == nullptr) return tokens;
  if (!list->is_array()) f.fail("added_tokens", "an array");
  for (const auto& entry : *list) {
    const JsonFields t(entry, source, fmt::format("added_tokens[{}].", tokens.size()));
    tokens.push_back(added_token_of(t, int32_t(t.integer("id", kIds)), !t.flag("special", false)));
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
