#include "weft/train/checkpoint_companions.h"

#include <algorithm>
#include <set>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/gguf/gguf_file.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// A run on token files goes on where weft cannot read the tokenizer of its GGUF file: judge_tokenizer has told it.
std::vector<TokenizerFile> tokenizer_files_in_gguf(const fs::path& file) {
  try {
    return tokenizer_files(file);
  } catch (const Error&) { return {}; }
}

// All small files of a model's folder that are not weights: also of a tokenizer that weft does not read.
std::vector<TokenizerFile> companions_of_model(const fs::path& folder) {
  if (is_gguf(folder)) return tokenizer_files_in_gguf(folder);
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
    if (fs::exists(file.from, ignored) && !fs::exists(to / file.name, ignored)) file.copy_to(to);
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

namespace {

namespace fs = std::filesystem;

constexpr const char* kMoreTemplates = "additional_chat_templates";

// The folder is weft's; what somebody has put there is not.
void refuse_other_files(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  std::set<std::string> own;
  if (!find_tokenizer(folder).empty())
    for (const TokenizerFile& file : tokenizer_files(folder)) own.insert(fs::path(file.name).begin()->string());
  for (const auto& entry : fs::directory_iterator(folder))
    if (!own.count(entry.path().filename().string()))
      throw FileError(fmt::format("{}: is no file of the run's tokenizer, which weft keeps in this folder; move it",
                                  entry.path().string()));
}

bool is_template(const std::string& name) { return name.starts_with("chat_template.") || name.find('/') != name.npos; }

// May be the name of a file: it comes from a JSON file of whoever made the tokenizer.
bool is_plain(const std::string& name) {
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

void copy_files(const RunTokenizer& tokenizer, const fs::path& to) {
  for (const TokenizerFile& file : tokenizer_files(tokenizer.path)) {
    if (!tokenizer.chat_templates.empty() && is_template(file.name)) continue;
    file.copy_to(to);
  }
}

void write_templates(const std::map<std::string, std::string>& templates, const fs::path& to) {
  if (templates.empty()) return;
  for (const auto& [name, text] : templates) {
    const bool is_default = name == "default";
    if (!is_default && !is_plain(name)) continue;
    if (!is_default) fs::create_directories(to / kMoreTemplates);
    write_file_durably(is_default ? to / "chat_template.jinja" : to / kMoreTemplates / (name + ".jinja"), text);
  }
  // Programs that do not know chat_template.jinja would take another template from here.
  const fs::path config = to / "tokenizer_config.json";
  if (!fs::exists(config)) return;
  nlohmann::json json = read_json_file(config);
  if (!json.is_object() || !json.contains("chat_template")) return;
  json["chat_template"] = nlohmann::json::array();
  for (const auto& [name, text] : templates) json["chat_template"].push_back({{"name", name}, {"template", text}});
  if (templates.size() == 1 && templates.contains("default")) json["chat_template"] = templates.at("default");
  fs::remove(config);
  write_file_durably(config, json.dump(2) + "\n");
}

bool holds_tokenizer(const fs::path& folder, const std::string& fingerprint) {
  try {
    return !find_tokenizer(folder).empty() && read_tokenizer(folder)->fingerprint() == fingerprint;
  } catch (const Error&) { return false; }
}

std::optional<std::string> make_folder(const RunTokenizer& tokenizer, const fs::path& folder) {
  DurableFolder made(folder);
  std::error_code error;
  fs::create_directories(made.building(), error);
  if (error) throw FileError(fmt::format("{}: {}", made.building().string(), error.message()));
  if (tokenizer.path == "byte")
    write_file_durably(made.building() / "tokenizer.json", byte_tokenizer_json());
  else
    copy_files(tokenizer, made.building());
  if (read_tokenizer(made.building())->fingerprint() != tokenizer.fingerprint) {
    fs::remove_all(folder, error);
    return fmt::format(
        "the files of tokenizer {} would be another by themselves: checkpoints will have none, and weft "
        "eval and weft generate will need --tokenizer {}",
        tokenizer.path, tokenizer.path);
  }
  write_templates(tokenizer.chat_templates, made.building());
  made.commit();
  return {};
}

}  // namespace

std::optional<std::string> keep_tokenizer(const RunTokenizer& tokenizer, const fs::path& run) {
  const fs::path folder = run / "tokenizer";
  if (tokenizer.path == folder && tokenizer.chat_templates.empty()) return {};
  refuse_other_files(folder);
  if (tokenizer.path.empty()) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    return {};
  }
  try {
    return make_folder(tokenizer, folder);
  } catch (const FileError& e) {  // a full disk
    if (!holds_tokenizer(folder, tokenizer.fingerprint)) throw;
    return fmt::format("{}; the run goes on with {}, which is of this tokenizer", e.what(), folder.string());
  }
}

fs::path kept_tokenizer(const fs::path& run) {
  std::error_code ignored;
  const fs::path folder = run / "tokenizer";
  return fs::is_directory(folder, ignored) ? folder : fs::path();
}

}  // namespace weft
