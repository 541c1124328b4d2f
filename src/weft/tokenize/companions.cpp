#include "weft/tokenize/companions.h"

#include <algorithm>
#include <charconv>

#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// "bos_token": "<s>" or {"content": "<s>", ...}
std::string token_of(const JsonFields& f, std::string_view key) {
  const auto* value = f.find(key);
  if (value == nullptr) return "";
  return value->is_object() ? f.object(key).string("content", "") : f.string(key);
}

void read_config(const nlohmann::json& config, const std::string& source, Companions& c) {
  const JsonFields f(config, source);
  c.beginning = token_of(f, "bos_token");
  c.end = token_of(f, "eos_token");
  if (f.has("add_bos_token")) c.add_beginning = f.flag("add_bos_token", false);
  if (f.has("add_eos_token")) c.add_end = f.flag("add_eos_token", false);
  if (!f.has("added_tokens_decoder")) return;
  const JsonFields decoder = f.object("added_tokens_decoder");
  for (const auto& [id, value] : decoder.json().items()) {
    const JsonFields t(value, source, fmt::format("added_tokens_decoder.{}.", id));
    AddedToken token = added_token_of(t, -1, false);
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), token.id);
    if (error != std::errc() || end != id.data() + id.size() || token.id < 0 || token.id > 1 << 24)
      throw FileError(fmt::format("{}: {} is no id", decoder.where(id), in_quotes(id)));
    c.added.push_back(std::move(token));
  }
}

// {"bos_token": "<s>", "additional_special_tokens": ["<a>", {"content": "<b>"}]}: the names of special tokens.
std::vector<std::string> read_special_map(const fs::path& file, Companions& c) {
  const nlohmann::json map = read_json_file(file);
  const JsonFields f(map, file.string());
  std::vector<std::string> names;
  for (const auto& [key, value] : map.items()) {
    if (value.is_array()) {
      for (const auto& one : value)
        names.push_back(one.is_string() ? one.get<std::string>() : JsonFields(one, file.string()).string("content"));
    } else {
      names.push_back(token_of(f, key));
    }
  }
  if (c.beginning.empty()) c.beginning = token_of(f, "bos_token");
  if (c.end.empty()) c.end = token_of(f, "eos_token");
  return names;
}

// {"<a>": 32000}; what is known already is left as it is.
void read_added(const fs::path& file, const std::vector<std::string>& specials, Companions& c) {
  const nlohmann::json map = read_json_file(file);
  const JsonFields f(map, file.string());
  for (const auto& [content, value] : map.items()) {
    const auto id = f.integer(content, {0, 1 << 24});
    const auto same = [&, &name = content](const AddedToken& t) { return t.id == id || t.content == name; };
    if (std::any_of(c.added.begin(), c.added.end(), same)) continue;
    const bool special = std::find(specials.begin(), specials.end(), content) != specials.end();
    c.added.push_back({.id = int32_t(id), .content = content, .special = special});
  }
}

}  // namespace

AddedToken added_token_of(const JsonFields& token, int32_t id, bool normalized) {
  return {.id = id,
          .content = token.string("content"),
          .special = token.flag("special", false),
          .normalized = token.flag("normalized", normalized),
          .single_word = token.flag("single_word", false),
          .left_strip = token.flag("lstrip", false),
          .right_strip = token.flag("rstrip", false)};
}

bool Companions::lists(std::string_view content) const {
  return std::any_of(added.begin(), added.end(), [&](const AddedToken& t) { return t.content == content; });
}

nlohmann::json as_json(const std::vector<AddedToken>& added) {
  nlohmann::json list = nlohmann::json::array();
  for (const AddedToken& t : added)
    list.push_back({{"id", t.id},
                    {"content", t.content},
                    {"special", t.special},
                    {"normalized", t.normalized},
                    {"single_word", t.single_word},
                    {"lstrip", t.left_strip},
                    {"rstrip", t.right_strip}});
  return list;
}

Companions companions_of(const nlohmann::json& config, const std::string& source) {
  Companions c;
  read_config(config, source, c);
  return c;
}

Companions read_companions(const fs::path& folder) {
  Companions c;
  std::error_code ignored;
  const fs::path config = folder / "tokenizer_config.json";
  if (fs::exists(config, ignored)) read_config(read_json_file(config), config.string(), c);
  if (fs::exists(folder / "tokenizer.json", ignored)) return c;
  std::vector<std::string> specials;
  if (fs::exists(folder / "special_tokens_map.json", ignored))
    specials = read_special_map(folder / "special_tokens_map.json", c);
  if (fs::exists(folder / "added_tokens.json", ignored)) read_added(folder / "added_tokens.json", specials, c);
  return c;
}

int32_t end_of_document(const Companions& companions, const std::vector<AddedToken>& added) {
  const auto id_of = [&](std::string_view name) {
    const auto at = std::find_if(added.begin(), added.end(), [&](const auto& t) { return t.content == name; });
    return at == added.end() ? -1 : at->id;
  };
  if (!companions.end.empty() && id_of(companions.end) >= 0) return id_of(companions.end);
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|endoftext|>",
                           "<\xef\xbd\x9c"
                           "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
                           "<EOT>", "[SEP]"})
    if (id_of(name) >= 0) return id_of(name);
  return -1;
}

}  // namespace weft
