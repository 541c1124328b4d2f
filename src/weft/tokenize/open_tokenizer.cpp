// Which file of a path holds the tokenizer, and of which kind it is.
#include <xxhash.h>

#include <algorithm>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/mapped_file.h"
#include "weft/gguf/gguf_file.h"
#include "weft/tokenize/gguf_vocabulary.h"
#include "weft/tokenize/rank_file.h"
#include "weft/tokenize/sentencepiece_spec.h"
#include "weft/tokenize/tokenizer_json.h"
#include "weft/tokenize/tokenizer_source.h"
#include "weft/tokenize/vocabulary_files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// The files of a folder, the most telling first.
constexpr const char* kFiles[] = {"tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
                                  "vocab.json",     "encoder.json",    "vocab.txt"};

// Whether it is taken for a tokenizer where it is the only such file of its folder.
bool may_be_tokenizer(const std::string& name) {
  return name.ends_with(".tiktoken") || name.find(".model") != std::string::npos;
}

std::string replaced(std::string name, std::string_view what, std::string_view by) {
  const size_t at = name.rfind(what);
  return at == std::string::npos ? "" : name.replace(at, what.size(), by);
}

// encoder.json has vocab.bpe beside it, vocab.json merges.txt, x-vocab.json x-merges.txt.
fs::path merges_beside(const fs::path& vocabulary) {
  const std::string stem = vocabulary.stem().string();
  std::vector<std::string> names{replaced(stem, "vocab", "merges") + ".txt",
                                 replaced(stem, "encoder", "vocab") + ".bpe"};
  for (const auto& name : names)
    if (!name.starts_with('.') && is_there(vocabulary.parent_path() / name)) return vocabulary.parent_path() / name;
  throw FileError(
      fmt::format("{}: no tokenizer.json (\"model\" is missing), and as a vocabulary its merges are missing: "
                  "there is no {} beside it",
                  vocabulary.string(), names[0].starts_with('.') ? "merges.txt" : names[0]));
}

std::string hash_of(std::string_view kind, std::string_view a, std::string_view b = "") {
  return fmt::format("{}-{:016x}", kind, XXH64(b.data(), b.size(), XXH64(a.data(), a.size(), 0)));
}

// Null where this build has none: not every tokenizer asks for it.
std::shared_ptr<const CharacterTable> table_if_known() { return has_unicode() ? make_character_table() : nullptr; }

bool is_json_object(std::string_view content) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  const size_t at = content.find_first_not_of(" \t\r\n");
  if (at == std::string_view::npos || content[at] != '{') return false;
  const size_t next = content.find_first_not_of(" \t\r\n", at + 1);
  return next != std::string_view::npos && (content[next] == '"' || content[next] == '}');
}

// Its library does not say of other files that they are no models at all.
void refuse_what_is_no_model(const fs::path& path, std::string_view content) {
  const bool said = path.filename().string().find(".model") != std::string::npos;
  if (said || (!content.empty() && read_sentencepiece_spec(content).whole)) return;
  throw FileError(fmt::format("{}: is neither a tokenizer.json, nor tiktoken ranks, nor a SentencePiece model{}",
                              path.string(), content.empty() ? ": it is empty" : " (or it is cut short)"));
}

bool is_json(const fs::path& path, const MappedFile& file) {
  return path.extension() == ".json" || is_json_object(file.text());
}

// Not a tokenizer.json: {"token": id}, in which a token may be called model.
bool is_vocabulary(const nlohmann::json& json) {
  return json.is_object() && (!json.contains("model") || json["model"].is_number());
}

std::unique_ptr<Tokenizer> read_json(const fs::path& path, const MappedFile& file) {
  if (file.text() == byte_tokenizer_json()) return make_byte_tokenizer();
  nlohmann::json json = parse_json(file.text(), path.string(), kTokenizerJson);
  const Companions companions = read_companions(path.parent_path());
  if (!is_vocabulary(json))
    return read_tokenizer_json(json, {path.string(), hash_of("json", file.text()), table_if_known()}, companions);
  const MappedFile merges(merges_beside(path));
  const auto whole = as_tokenizer_json(std::move(json), merges.text(), merges.path().string(), companions);
  return read_tokenizer_json(whole, {path.string(), hash_of("bpe", file.text(), merges.text()), table_if_known()},
                             companions);
}

std::unique_ptr<Tokenizer> read_vocabulary(const fs::path& path) {
  const MappedFile file(path);
  const Companions companions = read_companions(path.parent_path());
  const auto whole = vocabulary_as_tokenizer_json(file.text(), path, companions);
  return read_tokenizer_json(whole, {path.string(), hash_of("words", whole.dump()), table_if_known()}, companions);
}

// The files that stand for the tokenizer in a GGUF file: none where it holds none.
std::vector<TokenizerFile> files_in_gguf(const fs::path& path) {
  const GgufFile file(path);
  return tokenizer_files_of(read_gguf_vocabulary(file.fields()), path.string());
}

// Also where weft cannot read it: taken for a file without a tokenizer, its text would be read as bytes.
bool has_vocabulary(const fs::path& gguf) {
  const GgufFile file(gguf);
  return has_gguf_vocabulary(file.fields());
}

Companions companions_in(const std::vector<TokenizerFile>& files, const std::string& source) {
  return companions_of(parse_json(files[1].content, source), source);
}

std::unique_ptr<Tokenizer> read_gguf_tokenizer(const fs::path& path) {
  const std::string source = path.string();
  const auto files = files_in_gguf(path);
  if (files.empty())
    throw FileError(fmt::format("{}: holds no tokenizer (\"tokenizer.ggml.model\"); give one by --tokenizer", source));
  const std::string& content = files[0].content;
  if (files[0].name != "tokenizer.json") return make_sentencepiece(content, source, companions_in(files, source));
  return read_tokenizer_json(parse_json(content, source, kTokenizerJson),
                             {source, hash_of("json", content), table_if_known()}, companions_in(files, source));
}

[[noreturn]] void refuse_empty(const fs::path& folder) {
  throw FileError(
      fmt::format("{}: holds no tokenizer that weft reads: tokenizer.json, tokenizer.model, spiece.model, "
                  "vocab.json with merges.txt, encoder.json with vocab.bpe, vocab.txt, one *.tiktoken",
                  folder.string()));
}

// The name of a tokenizer's own file by which find_tokenizer knows it.
std::string name_in_folder(const fs::path& file, const MappedFile& content) {
  const std::string name = file.filename().string();
  if (name.ends_with("vocab.txt")) return "vocab.txt";
  if (!is_rank_file(content.text())) return "tokenizer.model";
  return may_be_tokenizer(name) ? name : name + ".tiktoken";  // it may tell the pattern
}

}  // namespace

fs::path find_tokenizer(const fs::path& folder) {
  if (folder.empty()) return {};
  if (is_gguf(folder)) return has_vocabulary(folder) ? folder : fs::path();
  for (const char* name : kFiles)
    if (is_there(folder / name)) return folder / name;
  std::vector<fs::path> others;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (may_be_tokenizer(name)) others.push_back(entry.path());
  }
  std::sort(others.begin(), others.end());
  return others.size() == 1 ? others[0] : fs::path();
}

void TokenizerFile::copy_to(const fs::path& folder) const {
  const fs::path to = folder / name;
  if (!content.empty()) return write_file_durably(to, content);
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  fs::copy_file(from, to, error);
  if (error)
    throw FileError(fmt::format("{}: cannot be copied to {}: {}", from.string(), to.string(), error.message()));
}

bool TokenizerFile::equals(const fs::path& file) const {
  if (!is_there(file)) return false;
  const MappedFile other(file);
  return content.empty() ? MappedFile(from).text() == other.text() : other.text() == content;
}

std::vector<TokenizerFile> tokenizer_files(const fs::path& path) {
  if (is_gguf(path)) return files_in_gguf(path);
  const bool folder = fs::is_directory(path);
  const fs::path file = folder ? find_tokenizer(path) : path, beside = file.parent_path();
  if (file.empty()) refuse_empty(path);
  const MappedFile content(file);
  std::vector<TokenizerFile> files;
  if (file.filename().string().ends_with("vocab.txt") || !is_json(file, content)) {
    files.push_back({file, folder ? file.filename().string() : name_in_folder(file, content)});
  } else if (is_vocabulary(parse_json(content.text(), file.string(), kTokenizerJson))) {
    files = {{file, "vocab.json"}, {merges_beside(file), "merges.txt"}};
  } else {
    files.push_back({file, "tokenizer.json"});
  }
  std::vector<std::string> others{"tokenizer_config.json", "chat_template.jinja", "chat_template.json"};
  if (!is_there(beside / "tokenizer.json") || file.filename() == "tokenizer.json")  // as read_companions does
    others.insert(others.end(), {"special_tokens_map.json", "added_tokens.json"});
  if (folder) {  // none of these is found before the first
    others.insert(others.end(), std::begin(kFiles), std::end(kFiles));
    others.insert(others.end(), {"merges.txt", "vocab.bpe"});
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(beside / "additional_chat_templates", ignored))
    if (entry.path().extension() == ".jinja")
      others.push_back("additional_chat_templates/" + entry.path().filename().string());
  std::sort(others.begin(), others.end());
  for (const std::string& name : others) {
    const auto same = [&](const TokenizerFile& f) { return f.name == name; };
    if (is_there(beside / name) && std::none_of(files.begin(), files.end(), same))
      files.push_back({beside / name, name});
  }
  return files;
}

std::unique_ptr<Tokenizer> read_tokenizer(const fs::path& path, const TokenizerOptions& options) {
  if (path == "byte") return make_byte_tokenizer();
  if (fs::is_directory(path)) {
    const fs::path file = find_tokenizer(path);
    if (file.empty()) refuse_empty(path);
    return read_tokenizer(file, options);
  }
  if (is_gguf(path)) return read_gguf_tokenizer(path);
  if (path.filename().string().ends_with("vocab.txt")) return read_vocabulary(path);
  const MappedFile file(path);
  if (is_json(path, file)) return read_json(path, file);
  if (!is_rank_file(file.text())) {
    refuse_what_is_no_model(path, file.text());
    return open_sentencepiece(path);
  }
  return read_rank_file({.content = file.text(),
                         .name = path.filename().string(),
                         .pattern = options.pattern,
                         .source = path.string(),
                         .fingerprint = hash_of("ranks", file.text()),
                         .table = table_if_known()},
                        read_companions(path.parent_path()));
}

std::vector<std::string> tokenizer_fingerprints(const fs::path& path) {
  std::vector<std::string> all{read_tokenizer(path)->fingerprint()};
  if (!is_gguf(path)) return all;
  std::string before = GgufFile(path).fields().text(kGgufFingerprint, "");
  if (!before.empty()) all.push_back(std::move(before));
  return all;
}

std::unique_ptr<Tokenizer> open_sentencepiece(const fs::path& file) {
  return make_sentencepiece(MappedFile(file).text(), file.string(), read_companions(file.parent_path()));
}

namespace {

// A tokenizer.json that a SentencePiece model beside it was converted to.
bool was_converted(const fs::path& file, const nlohmann::json& json) {
  const fs::path model = file.parent_path() / "tokenizer.model";
  const auto at = json.find("pre_tokenizer");
  const bool bytes = at != json.end() && at->dump().find("ByteLevel") != std::string::npos;
  return !bytes && is_there(model) && read_sentencepiece_spec(MappedFile(model).text()).whole;
}

TokenizerSource sentencepiece_source(const fs::path& file) {
  return {nullptr, std::string(MappedFile(file).text()), read_companions(file.parent_path())};
}

TokenizerSource source_in_gguf(const fs::path& path) {
  const auto files = files_in_gguf(path);
  if (files.empty()) refuse_empty(path);
  TokenizerSource source{.companions = companions_in(files, path.string())};
  if (files[0].name == "tokenizer.json")
    source.json = parse_json(files[0].content, path.string(), kTokenizerJson);
  else
    source.sentencepiece = files[0].content;
  return source;
}

}  // namespace

TokenizerSource read_tokenizer_source(const fs::path& path) {
  if (path == "byte") return {nlohmann::json::parse(byte_tokenizer_json()), "", {}};
  if (is_gguf(path)) return source_in_gguf(path);
  const fs::path file = fs::is_directory(path) ? find_tokenizer(path) : path;
  if (file.empty()) refuse_empty(path);
  const MappedFile content(file);
  if (is_json(file, content)) {
    nlohmann::json json = parse_json(content.text(), file.string(), kTokenizerJson);
    const Companions companions = read_companions(file.parent_path());
    if (is_vocabulary(json)) {
      const MappedFile merges(merges_beside(file));
      return {as_tokenizer_json(std::move(json), merges.text(), merges.path().string(), companions), "", companions};
    }
    if (!was_converted(file, json)) return {std::move(json), "", companions};
    return sentencepiece_source(file.parent_path() / "tokenizer.model");
  }
  if (!is_rank_file(content.text()) && read_sentencepiece_spec(content.text()).whole) return sentencepiece_source(file);
  throw ConfigError(fmt::format(
      "{}: is neither a tokenizer.json nor a SentencePiece model; give the model's tokenizer.json by --tokenizer",
      file.string()));
}

namespace {

// The tokenizer of a name, whatever the model.
std::unique_ptr<Tokenizer> named_tokenizer(const std::string& name, const fs::path& model_folder) {
  if (name == "byte") return make_byte_tokenizer();
  if (name == "auto") {
    const fs::path file = find_tokenizer(model_folder);
    return file.empty() ? make_byte_tokenizer() : read_tokenizer(file);
  }
  if (!is_there(name))
    throw ConfigError(
        fmt::format("tokenizer \"{}\": no such file or folder; there are auto, byte, and paths of a model's "
                    "folder, tokenizer.json, vocab.json, SentencePiece models and rank files",
                    name));
  return read_tokenizer(name);
}

// Weights have the vocabulary that they were trained with; where there are none, a config may have another.
bool has_weights(const fs::path& model) {
  std::error_code ignored;
  if (is_gguf(model)) return true;
  for (const auto& entry : fs::directory_iterator(model, ignored))
    if (entry.path().extension() == ".safetensors") return true;
  return false;
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const fs::path& model_folder, int64_t model_vocab) {
  auto tokenizer = named_tokenizer(name, model_folder);
  if (model_vocab < tokenizer->vocab_size()) {
    const bool bytes = tokenizer->fingerprint().starts_with("byte");
    throw ConfigError(fmt::format(
        "the tokenizer ({}) has {} ids, the model's vocab_size is {}; {}",
        bytes ? "byte: 256 bytes and the end of a document" : tokenizer->fingerprint(), tokenizer->vocab_size(),
        model_vocab,
        has_weights(model_folder)
            ? "its weights are of that vocabulary: give the tokenizer that it was trained with, or token "
              "ids in place of texts"
            : fmt::format("make it {} or more, or give another tokenizer or token files", tokenizer->vocab_size())));
  }
  return tokenizer;
}

}  // namespace weft
