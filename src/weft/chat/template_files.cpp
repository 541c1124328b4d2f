// Where a tokenizer's chat template stands.
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"
#include "weft/chat/built_in_templates.h"
#include "weft/chat/conversation.h"
#include "weft/gguf/gguf_file.h"
#include "weft/tokenize/tokenizer.h"

namespace weft::chat {
namespace {

namespace fs = std::filesystem;

// A template's text and where it is from, by name.
struct Source {
  std::string text, name;
};
using Sources = std::map<std::string, Source>;

// tokenizer_config.json, and what else is asked for beside a tokenizer; null where it is not there.
nlohmann::json json_beside(const fs::path& tokenizer, const std::string& name) {
  if (is_gguf(tokenizer)) {
    for (const TokenizerFile& file : tokenizer_files(tokenizer))
      if (file.name == name) return parse_json(file.content, tokenizer.string());
    return nullptr;
  }
  const fs::path file = (fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path()) / name;
  return is_there(file) ? read_json_file(file) : nlohmann::json();
}

Source of_file(const fs::path& path) { return {std::string(MappedFile(path).text()), path.string()}; }

// "chat_template" of a JSON file: a text, or [{"name": ..., "template": ...}].
Sources of_config(const nlohmann::json& json, const fs::path& path) {
  const JsonFields f(json, path.string());
  const auto* found = f.find("chat_template");
  if (found == nullptr) return {};
  Sources sources;
  const std::string where = path.string() + ": chat_template";
  if (found->is_string()) {
    sources["default"] = {found->get<std::string>(), where};
    return sources;
  }
  if (!found->is_array()) f.fail("chat_template", "a text, or a list of templates with names");
  for (const auto& item : *found) {
    const JsonFields one(item, path.string(), "chat_template.");
    const std::string name = one.string("name");
    sources[name] = {one.string("template"), fmt::format("{} {}", where, in_quotes(name))};
  }
  return sources;
}

Sources of_folder(const fs::path& folder) {
  Sources sources;
  for (const char* name : {"tokenizer_config.json", "chat_template.json"})
    if (is_there(folder / name)) sources = of_config(read_json_file(folder / name), folder / name);
  if (is_there(folder / "chat_template.jinja")) sources["default"] = of_file(folder / "chat_template.jinja");
  const fs::path more = folder / "additional_chat_templates";
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(more, ignored))
    if (entry.path().extension() == ".jinja") sources[entry.path().stem().string()] = of_file(entry.path());
  return sources;
}

Sources of_tokenizer(const fs::path& tokenizer) {
  if (tokenizer == "byte") return {};
  if (!is_gguf(tokenizer)) return of_folder(fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path());
  const std::string text = GgufFile(tokenizer).fields().text("tokenizer.chat_template", "");
  if (text.empty()) return {};
  return {{"default", {text, tokenizer.string() + ": tokenizer.chat_template"}}};
}

// "<s>", or {"content": "<s>", ...}
std::string token_text(const nlohmann::json& v) {
  if (v.is_string()) return v.get<std::string>();
  const bool object = v.is_object() && v.contains("content") && v["content"].is_string();
  return object ? v["content"].get<std::string>() : "";
}

Value special_tokens(const fs::path& tokenizer) {
  Value tokens = make_dict();
  if (tokenizer == "byte") return tokens;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const nlohmann::json json = json_beside(tokenizer, name);
    if (json.is_null()) continue;
    const JsonFields f(json, name);
    for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
      if (const auto* v = f.find(key); v != nullptr && !token_text(*v).empty()) tokens.dict().set(key, token_text(*v));
  }
  return tokens;
}

// The built-in template of that name, unless a file has it; or null.
const BuiltInTemplate* built_in_of(const TemplateChoice& choice) {
  return is_there(choice.file) ? nullptr : built_in_template(choice.file.string());
}

// A built-in template for a tokenizer that names neither token says itself what they are: so it renders the same
// wherever its text is kept, as in checkpoints.
std::string text_of(const BuiltInTemplate& built_in, const fs::path& tokenizer) {
  std::string text(built_in.text);
  const Value tokens = special_tokens(tokenizer);
  if (tokens.dict().get("bos_token") != nullptr || tokens.dict().get("eos_token") != nullptr) return text;
  for (const auto& [name, token] : {std::pair{"eos_token", built_in.eos}, {"bos_token", built_in.bos}})
    if (built_in.text.find(name) != std::string_view::npos)
      text = fmt::format("{{% set {} = '{}' %}}", name, token) + text;
  return text;
}

Sources sources_of(const fs::path& tokenizer, const TemplateChoice& choice) {
  if (const BuiltInTemplate* built_in = built_in_of(choice))
    return {{"default", {text_of(*built_in, tokenizer), choice.file.string()}}};
  if (!choice.file.empty() && !is_there(choice.file))
    throw FileError(
        fmt::format("{}: there is no such file, and no chat template of this name is built in; there are {}",
                    choice.file.string(), built_in_template_names()));
  if (choice.file.empty()) return of_tokenizer(tokenizer);
  if (choice.file.extension() == ".json") return of_config(read_json_file(choice.file), choice.file);
  return {{"default", of_file(choice.file)}};
}

std::string names_of(const Sources& sources) {
  std::string names;
  for (const auto& [name, source] : sources) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

ChatTemplate read_chat_template(const fs::path& tokenizer, const TemplateChoice& choice) {
  const Sources sources = sources_of(tokenizer, choice);
  const std::string where = choice.file.empty() ? tokenizer.string() : choice.file.string();
  const std::string needed = choice.name.empty() ? "default" : choice.name;
  if (sources.empty())
    throw FileError(
        fmt::format("{}: no chat template: there is none in chat_template.jinja, chat_template.json or "
                    "tokenizer_config.json; give one by {}: a file, or the name of a built-in one ({})",
                    where, choice.option, built_in_template_names()));
  if (!sources.contains(needed))
    throw FileError(fmt::format("{}: no chat template {}; there are {}", where, in_quotes(needed), names_of(sources)));
  std::map<std::string, Template> templates;
  for (const auto& [name, source] : sources)
    if (name == needed || (choice.name.empty() && name == "tool_use"))
      templates.emplace(name, Template(source.text, source.name));
  return ChatTemplate(std::move(templates), special_tokens(tokenizer), choice.name);
}

std::map<std::string, std::string> chat_template_texts(const fs::path& tokenizer, const TemplateChoice& choice) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, source] : sources_of(tokenizer, choice)) texts[name] = source.text;
  return texts;
}

}  // namespace weft::chat
