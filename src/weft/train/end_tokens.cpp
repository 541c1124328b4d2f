#include "weft/train/end_tokens.h"

#include <algorithm>
#include <limits>

#include "weft/base/is_there.h"
#include "weft/base/json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void add_ids(const nlohmann::json& json, const std::string& source, std::vector<int32_t>& ids) {
  const JsonFields fields(json, source);
  const nlohmann::json* found = fields.find("eos_token_id");
  if (found == nullptr) return;
  const nlohmann::json list = found->is_array() ? *found : nlohmann::json::array({*found});
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer()) fields.fail("eos_token_id", "a token id, or a list of them");
    const auto value = id.get<int64_t>();
    if (value >= 0 && value <= std::numeric_limits<int32_t>::max()) ids.push_back(int32_t(value));
  }
}

// Empty: there is none.
fs::path generation_config_of(const fs::path& folder, const HfConfig& config) {
  const char* kName = "generation_config.json";
  if (is_there(folder / kName)) return folder / kName;
  if (!config.adapter) return {};
  const fs::path of_base = base_of_adapter(folder, *config.adapter) / kName;
  return is_there(of_base) ? of_base : fs::path();
}

}  // namespace

std::vector<int32_t> end_tokens_of(const fs::path& folder, const HfConfig& config, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  add_ids(config.json, (folder / "config.json").string(), ids);
  if (const fs::path file = generation_config_of(folder, config); !file.empty())
    add_ids(read_json_file(file), file.string(), ids);
  std::erase_if(ids, [&](const int32_t& id) {
    return !tokenizer.decode({&id, 1}, Tokenizer::Specials::kHidden).empty();
  });
  if (tokenizer.end_of_document() >= 0) ids.push_back(tokenizer.end_of_document());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace weft
