#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/data_lines.h"
#include "weft/apps/judged_loss.h"
#include "weft/apps/release.h"
#include "weft/apps/required_results.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/threads.h"
#include "weft/chat/conversation.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/gguf_config.h"
#include "weft/models/gguf_export.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

GgufType type_named(const std::string& name) {
  for (const GgufTypeInfo& t : kGgufTypes)
    if (t.name == name && t.type != GgufType::mxfp4) return t.type;  // that is read alone
  throw ConfigError(fmt::format("--type {}: there are F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K", name));
}

// The name that a model has by its path: of a checkpoint, that of its run.
std::string name_of_model(const fs::path& given) {
  fs::path path = fs::absolute(given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.parent_path().filename() == "checkpoints") path = path.parent_path().parent_path();
  const std::string name = path.filename().string(), suffix = ".gguf";
  return is_gguf(path) && name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

// The tokenizer that goes into the file; "none".
std::string tokenizer_to_write(const ExportOptions& o, const fs::path& model) {
  if (o.tokenizer != "auto") return o.tokenizer;
  const ModelTokenizer own = tokenizer_of_model(model, recipe_of_checkpoint(model), "auto");
  if (own.note.empty()) return own.name;
  std::cerr << "note: " << model.string()
            << ": holds no tokenizer, and the file gets none; --tokenizer PATH adds one\n";
  return "none";
}

// The chat template beside the tokenizer, else the model's: a tokenizer that is given by name may stand alone.
std::string chat_template_to_write(const std::string& tokenizer, const fs::path& model) {
  for (const fs::path& place : {fs::path(tokenizer), model}) {
    const auto templates = chat::chat_template_texts(place);
    if (const auto text = templates.find("default"); text != templates.end()) return text->second;
  }
  return "";
}

GgufVocabulary vocabulary_to_write(const std::string& tokenizer, const fs::path& model, int64_t vocab_size) {
  if (tokenizer == "none") return {};
  GgufVocabulary vocabulary = gguf_vocabulary_of(tokenizer, vocab_size);
  vocabulary.chat_template = chat_template_to_write(tokenizer, model);
  return vocabulary;
}

// A file that is looked at before it gets its name; the destructor removes it.
class Unchecked {
 public:
  explicit Unchecked(const fs::path& path) : path_(path), file_(name_of(path)) {}
  Unchecked(const Unchecked&) = delete;
  Unchecked& operator=(const Unchecked&) = delete;
  ~Unchecked() {
    std::error_code ignored;
    fs::remove(file_, ignored);
  }
  static fs::path name_of(const fs::path& path) { return path.string() + ".unchecked"; }
  const fs::path& file() const { return file_; }
  void keep() const {
    std::error_code error;
    fs::rename(file_, path_, error);
    if (error) throw FileError(fmt::format("{}: cannot be put in place: {}", path_.string(), error.message()));
    sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
  }

 private:
  const fs::path path_, file_;
};

// Writes the file between two measurements, both by the same ids: those of the model's own tokenizer.
void write_judged(const ExportOptions& o, const fs::path& model, const ModelSpec& spec, const std::string& tokenizer,
                  const std::function<void(const fs::path&)>& write) {
  const JudgedLoss loss(o, model, spec, tokenizer);
  const Unchecked file(o.gguf);
  write(file.file());
  loss.judge(file.file(), "--type " + o.type, "take a type of more bits (Q4_0, Q4_K, Q6_K, Q8_0, F16)");
  file.keep();
}

// Where numbers are only copied, what else is given is for the loss alone.
void require_data_for(const ExportOptions& o, std::string_view folder) {
  const auto idle = [&](const std::string& option) {
    throw ConfigError(
        fmt::format("{}: has no effect on {} without --data; leave it out, or add --data FILE", option, folder));
  };
  if (!o.data.empty()) return;
  if (o.tokenizer != "auto") idle("--tokenizer " + o.tokenizer);
  if (o.threads > 0) idle(fmt::format("--threads {}", o.threads));
}

void require_fitting(const ExportOptions& o) {
  if (o.max_loss && o.data.empty())
    throw ConfigError("--max-loss: there is nothing to measure loss on; add --data FILE");
  if (!o.bf16.empty()) require_data_for(o, "--bf16");
  if (!o.draft.empty()) require_data_for(o, "--draft");
  if (!o.lora_of.empty() || !o.gptq.empty() || !o.bf16.empty() || !o.draft.empty()) return;
  if (o.gguf.empty())
    throw ConfigError(
        "what shall be written? --gptq FOLDER, --bf16 FOLDER, --draft FOLDER, --gguf FILE, or an adapter: --lora-of "
        "BASE --out FOLDER");
  require_replaceable("--gguf", o.gguf, o.again);
  const fs::path unchecked = Unchecked::name_of(o.gguf);
  if (!o.data.empty() && is_name_taken(unchecked))
    throw ConfigError(
        fmt::format("--gguf {}: the file is called {} until its loss is known, and that is there already: move it, or "
                    "name another file",
                    o.gguf, unchecked.string()));
}

GgufWritten write_file(const GgufExport& what, const HfConfig& config, const GgufVocabulary& vocabulary,
                       const fs::path& to) {
  DurableFile file(to);
  const GgufWritten written = write_gguf(what, config, vocabulary, [&](std::string_view bytes) { file.write(bytes); });
  file.commit();
  return written;
}

int run_gguf_export(const ExportOptions& o) {
  const fs::path model = model_folder_of(o.model, [](const std::string& line) { std::cerr << line << "\n"; });
  const HfConfig config = read_hf_config(model);
  if (o.data.empty())  // else told where the loss is measured
    for (const std::string& warning : config.warnings) std::cerr << "note: " << warning << "\n";
  require_gguf(config, model.string());
  const std::string tokenizer = tokenizer_to_write(o, model);
  const GgufVocabulary vocabulary = vocabulary_to_write(tokenizer, model, config.spec.vocab_size);
  const GgufExport what{.model = model,
                        .name = name_of_model(model),
                        .type = type_named(o.type),
                        .threads = o.threads > 0 ? int(o.threads) : usable_cores()};
  GgufWritten written;
  const auto write = [&](const fs::path& to) { written = write_file(what, config, vocabulary, to); };
  o.data.empty() ? write(o.gguf) : write_judged(o, model, config.spec, tokenizer, write);
  written.notes.insert(written.notes.end(), vocabulary.notes.begin(), vocabulary.notes.end());
  for (const std::string& note : written.notes) std::cout << "note: " << note << "\n";
  std::cout << fmt::format("{}: {} bytes, {} tensors, {:.2f} bits a number\n", o.gguf, written.bytes,
                           written.num_tensors, 8 * double(written.bytes) / double(written.num_numbers));
  return kExitOk;
}

// --results is of what is required, here or by a policy.
void require_use_of_results(const ExportOptions& o) {
  if (!o.results.empty() && o.require.empty() && o.policies.empty() && policies_around(o.model).empty())
    throw ConfigError(fmt::format("--results {}: nothing asks for results; add --require or --policy", o.results));
}

}  // namespace

int run_export(const ExportOptions& o) {
  require_fitting(o);
  require_use_of_results(o);
  std::string to;
  for (const std::string& one : {o.gguf, o.gptq, o.bf16, o.draft, o.out})
    if (!one.empty()) to = one;
  const ReleaseSpec spec{
      .command = "export", .models = {o.model}, .policies = o.policies, .results = o.results, .to = to};
  return released(spec, [&] {
    require_results(o);
    if (!o.lora_of.empty()) return run_extract(o);
    if (!o.gptq.empty()) return run_gptq_export(o);
    if (!o.bf16.empty()) return run_bf16_export(o);
    return o.draft.empty() ? run_gguf_export(o) : run_draft_export(o);
  });
}

}  // namespace weft
