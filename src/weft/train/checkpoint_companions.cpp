#include "weft/train/checkpoint_companions.h"

#include <vector>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void copy_new(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  fs::copy_file(from, to, fs::copy_options::skip_existing, error);
  if (error)
    throw FileError(fmt::format("{}: cannot be copied to {}: {}", from.string(), to.string(), error.message()));
}

// All small files of a model's folder that are not weights: also of a tokenizer that weft does not read.
std::vector<TokenizerFile> companions_of_model(const fs::path& folder) {
  std::vector<TokenizerFile> files;
  if (!find_tokenizer(folder).empty()) files = tokenizer_files(folder);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt",
                           "encoder.json", "vocab.bpe", "spiece.model", "special_tokens_map.json", "added_tokens.json",
                           "chat_template.jinja", "chat_template.json"})
    files.push_back({folder / name, name});
  return files;
}

std::vector<TokenizerFile> all_files(const fs::path& folder) {
  std::vector<TokenizerFile> files;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error))
    if (!entry.is_directory()) files.push_back({entry.path(), entry.path().lexically_relative(folder).string()});
  if (error) throw FileError(fmt::format("{}: {}", folder.string(), error.message()));
  return files;
}

}  // namespace

std::string copy_companions(const fs::path& model_folder, const fs::path& tokenizer, const fs::path& to) {
  std::vector<TokenizerFile> files = tokenizer.empty() ? companions_of_model(model_folder) : all_files(tokenizer);
  files.push_back({model_folder / "generation_config.json", "generation_config.json"});
  std::error_code ignored;
  for (const TokenizerFile& file : files)
    if (fs::exists(file.from, ignored)) copy_new(file.from, to / file.name);
  return find_tokenizer(to).filename().string();
}

std::optional<std::string> tokenizer_in_checkpoint(const fs::path& folder) {
  const fs::path file = folder / "weft" / "state.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  const nlohmann::json json = read_json_file(file);
  const JsonFields fields(json, file.string());
  if (!fields.has("tokenizer")) return {};
  const std::string name = fields.string("tokenizer");
  if (name.find('/') != name.npos || name == "..") fields.fail("tokenizer", "the name of a file beside config.json");
  return name;
}

}  // namespace weft
