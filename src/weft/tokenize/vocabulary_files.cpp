#include "weft/tokenize/vocabulary_files.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/tokenize/rank_file.h"

namespace weft {
namespace {

using Json = nlohmann::json;

Json merges_of(std::string_view text, const std::string& source) {
  Json merges = Json::array();
  for_each_text_line(text, source, [&](std::string_view line, int64_t) {
    if (line.empty() || (merges.empty() && line.starts_with("#version"))) return;
    merges.push_back(std::string(line));
  });
  return merges;
}

}  // namespace

Json as_tokenizer_json(Json vocabulary, std::string_view merges, const std::string& merges_source,
                       const Companions& companions) {
  Json added = as_json(companions.added);
  // Where no list has them: the names that such vocabularies hold for marks.
  for (const char* name : {"<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>"})
    if (!companions.lists(name) && vocabulary.contains(name) && vocabulary[name].is_number_integer())
      added.push_back({{"id", vocabulary[name]}, {"content", name}, {"special", true}, {"normalized", false}});
  const bool words = std::any_of(vocabulary.items().begin(), vocabulary.items().end(), [](const auto& item) {
    return item.key().size() > 4 && item.key().ends_with("</w>");
  });
  if (words)
    throw FileError(
        fmt::format("{}: tokens end with \"</w>\", and these files do not say how text is split; give a "
                    "tokenizer.json",
                    merges_source));
  return {{"added_tokens", std::move(added)},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", merges_of(merges, merges_source)}}}};
}

namespace {

using Json = nlohmann::json;

Json tokens_of(std::string_view text, const std::string& source) {
  Json ids = Json::object();
  for_each_text_line(text, source, [&](std::string_view line, int64_t number) { ids[std::string(line)] = number - 1; });
  return ids;
}

Json config_beside(const std::filesystem::path& file) {
  const auto config = file.parent_path() / "tokenizer_config.json";
  std::error_code ignored;
  return std::filesystem::exists(config, ignored) ? read_json_file(config) : Json::object();
}

}  // namespace

Json vocabulary_as_tokenizer_json(std::string_view vocabulary, const std::filesystem::path& file,
                                  const Companions& companions) {
  Json vocab = tokens_of(vocabulary, file.string());
  const Json config = config_beside(file);
  const JsonFields f(config, (file.parent_path() / "tokenizer_config.json").string());
  const auto token = [&](const char* key, const char* usual) {
    const auto* v = f.find(key);
    return v != nullptr && v->is_object() ? f.object(key).string("content") : f.string(key, usual);
  };
  const std::string unknown = token("unk_token", "[UNK]"), begin = token("cls_token", "[CLS]"),
                    end = token("sep_token", "[SEP]");
  Json added = as_json(companions.added);
  for (const std::string& name : {unknown, begin, end, token("pad_token", "[PAD]"), token("mask_token", "[MASK]")})
    if (!companions.lists(name) && vocab.contains(name))
      added.push_back({{"id", vocab[name]}, {"content", name}, {"special", true}, {"normalized", false}});
  Json whole{{"added_tokens", std::move(added)},
             {"normalizer",
              {{"type", "BertNormalizer"},
               {"clean_text", true},
               {"handle_chinese_chars", f.flag("tokenize_chinese_chars", true)},
               {"lowercase", f.flag("do_lower_case", true)},
               {"strip_accents", f.has("strip_accents") ? Json(f.flag("strip_accents")) : Json()}}},
             {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
             {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}}};
  if (vocab.contains(begin) && vocab.contains(end))
    whole["post_processor"] = {{"type", "BertProcessing"},
                               {"cls", Json::array({begin, vocab[begin]})},
                               {"sep", Json::array({end, vocab[end]})}};
  whole["model"] = {{"type", "WordPiece"}, {"unk_token", unknown}, {"vocab", std::move(vocab)}};
  return whole;
}

}  // namespace weft
