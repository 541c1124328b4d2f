#include "weft/pipeline/keys_seen.h"

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/json_path.h"
#include "weft/pipeline/row_template.h"

namespace weft {
namespace {

constexpr size_t kMostNames = 100, kMostShown = 20;
constexpr int kDeepest = 3;

void add_names_below(const nlohmann::json& object, const std::string& prefix, int depth, std::set<std::string>& names) {
  for (const auto& [key, value] : object.items()) {
    if (names.size() >= kMostNames) return;
    if (value.is_object() && !value.empty() && depth < kDeepest)
      add_names_below(value, prefix + key + ".", depth + 1, names);
    else
      names.insert(prefix + key);
  }
}

}  // namespace

std::vector<AskedKey> asked_keys(const SourceConfig& source) {
  std::vector<AskedKey> asked;
  const auto add = [&](const std::string& text, const char* by) {
    for (const RowTemplate::Key& key : RowTemplate(text).keys()) asked.push_back({key.name, by, !key.optional});
  };
  if (!source.messages_key.empty()) asked.push_back({source.messages_key, "source.messages_key", true});
  if (!source.prompt_key.empty()) add(source.prompt_key, "source.prompt_key");
  if (!source.completion_key.empty()) add(source.completion_key, "source.completion_key");
  if (!source.has_conversations()) add(source.text_key, "source.text_key");
  if (source.given.count("source.url_key")) asked.push_back({source.url_key, "source.url_key"});
  for (const std::string& key : source.meta_keys) asked.push_back({key, "source.meta_keys"});
  return asked;
}

void KeysSeen::see(const nlohmann::json& row, const std::vector<AskedKey>& asked) {
  ++rows;
  bool all = true;
  for (const AskedKey& one : asked) {
    if (found.count(one.key)) continue;
    if (find_path(row, one.key) != nullptr)
      found.insert(one.key);
    else
      all = false;
  }
  if (!all) add_names(row, names);
}

void KeysSeen::add(const KeysSeen& other) {
  if (source.empty()) source = other.source;
  rows += other.rows;
  found.insert(other.found.begin(), other.found.end());
  names.insert(other.names.begin(), other.names.end());
}

void refuse_missing_keys(const SourceConfig& source, const KeysSeen& seen) {
  if (seen.rows == 0) return;
  for (const AskedKey& one : asked_keys(source))
    if (!seen.found.count(one.key))
      throw ConfigError(fmt::format("source {}: no row has the key {} ({}); there are {}", in_quotes(source.name),
                                    in_quotes(one.key), one.by, key_list(seen.names)));
}

void add_names(const nlohmann::json& row, std::set<std::string>& names) {
  if (row.is_object()) add_names_below(row, "", 1, names);
}

std::string key_list(const std::set<std::string>& names) {
  std::string all;
  size_t shown = 0;
  for (const std::string& name : names)
    if (shown++ < kMostShown) all += (all.empty() ? "" : ", ") + in_quotes(name);
  if (shown > kMostShown) all += fmt::format(" and {} more", shown - kMostShown);
  return all.empty() ? "none" : all;
}

std::string key_list(const nlohmann::json& row) {
  std::set<std::string> names;
  add_names(row, names);
  return key_list(names);
}

}  // namespace weft
