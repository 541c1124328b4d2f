#include "weft/tokenize/gpt2_files.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/tokenize/text_lines.h"

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

}  // namespace weft
