#include "weft/train/run_tokenizer.h"

#include <algorithm>
#include <map>

#include "weft/base/error.h"
#include "weft/chat/conversation.h"
#include "weft/data/token_source.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/peft.h"
#include "weft/plan/teacher.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/data_files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAuto = "auto";

constexpr const char* kByte = "byte";

bool is_of_bytes(const DatasetTokenizer& t) { return t.fingerprint == make_byte_tokenizer()->fingerprint(); }

bool is_text(const std::string& entry) {
  std::error_code ignored;
  return !is_megatron(entry) && fs::path(entry).extension() != ".bin" && !fs::is_directory(entry, ignored);
}

// The tokenizers of all datasets in data.train and data.valid.
std::vector<DatasetTokenizer> tokenizers_of(const Recipe& recipe) {
  std::vector<std::string> files = training_files_of(recipe).paths;
  const std::vector<std::string> valid = validation_files_of(recipe.data.valid).paths;
  files.insert(files.end(), valid.begin(), valid.end());
  Datasets datasets;
  return dataset_tokenizers(files, datasets);
}
// Rows say themselves whether they are texts.
bool has_texts(const Recipe& recipe) {
  return reads_tokens(recipe.train.objective) && (any_is_text(recipe.data.train) || any_is_text(recipe.data.valid));
}

std::string named(const std::string& name, const std::string& fingerprint) {
  return fmt::format("{} ({})", name, fingerprint);
}
std::string made(const DatasetTokenizer& t) {
  return fmt::format("dataset {} was made with tokenizer {}", t.folder.string(), named(t.name, t.fingerprint));
}

// What is at a path now.
struct Found {
  std::string fingerprint;  // empty: nothing that can be read
  std::string why_not;
  std::string made_of = {};  // the fingerprint of the tokenizer of which it was made, for a GGUF file that says so
  bool is(const std::string& other) const { return fingerprint == other || (!made_of.empty() && made_of == other); }
};
Found look_at(const std::string& path) {
  try {
    const std::vector<std::string> all = tokenizer_fingerprints(path);
    return {.fingerprint = all.front(), .why_not = "", .made_of = all.size() > 1 ? all.back() : ""};
  } catch (const Error& e) { return {.fingerprint = "", .why_not = e.what()}; }
}

// Why the dataset's tokenizer cannot be had where the dataset says; empty: it can.
std::string why_lost(const DatasetTokenizer& t) {
  const Found now = look_at(t.name);
  if (now.fingerprint == t.fingerprint) return "";
  return now.fingerprint.empty() ? now.why_not : fmt::format("{} is now another, {}", t.name, now.fingerprint);
}

// Whether all that a tokenizer is read from, with its chat templates, stands in the model's folder too.
bool is_in_folder(const std::string& tokenizer, const fs::path& model) {
  if (tokenizer == kByte || find_tokenizer(model).empty()) return false;
  const auto files = tokenizer_files(tokenizer);
  return std::all_of(files.begin(), files.end(), [&](const TokenizerFile& f) { return f.equals(model / f.name); });
}

// The tokenizer that a run with checkpoints has kept; empty: none. What a start that failed has left is no run's.
fs::path copy_of_run(const Recipe& recipe) {
  return newest_checkpoint(recipe.run.dir) ? kept_tokenizer(recipe.run.dir) : fs::path();
}

// What a recipe names in data.tokenizer: text is read with it, also by what is made of the checkpoints later.
RunTokenizer of_named(const Recipe& recipe) {
  const std::string& name = recipe.data.tokenizer;
  const Found here = look_at(name);
  if (!here.fingerprint.empty())
    return is_in_folder(name, recipe.model.path) ? RunTokenizer{}
                                                 : RunTokenizer{.path = name, .fingerprint = here.fingerprint};
  const std::string kept = copy_of_run(recipe).string();
  const std::string why = fmt::format("data.tokenizer = \"{}\" cannot be read: {}", name, here.why_not);
  if (kept.empty() && has_texts(recipe)) throw ConfigError(why);
  if (kept.empty()) return {.warnings = {why + "; weft eval and weft generate will need it"}};
  return {.warnings = {fmt::format("{}; the run goes on with its own copy, {}", why, kept)},
          .path = kept,
          .fingerprint = look_at(kept).fingerprint};
}

class Judge {
 public:
  Judge(const Recipe& recipe, std::vector<DatasetTokenizer> datasets)
      : recipe_(recipe),
        datasets_(std::move(datasets)),
        begun_(newest_checkpoint(recipe.run.dir).has_value()),
        of_model_(find_tokenizer(recipe.model.path)) {}

  RunTokenizer result() && {
    recipe_.data.tokenizer == kAuto ? automatic() : explicitly();
    return std::move(result_);
  }

 private:
  const DatasetTokenizer& first() const { return datasets_.front(); }
  // Training itself does not need it, and a run that has begun cannot change its recipe.
  void refuse(const std::string& why) {
    if (!begun_) throw ConfigError(why);
    result_.warnings.push_back(why);
  }
  void keep(const std::string& path) {
    result_.path = path;
    result_.fingerprint = first().fingerprint;
  }

  void automatic() {
    for (const DatasetTokenizer& t : datasets_)
      if (t.fingerprint != first().fingerprint)
        refuse(
            fmt::format("data: {}, but {}; make both with one tokenizer, or name the one that the model is to have: "
                        "data.tokenizer = \"{}\"",
                        made(first()), made(t), first().name));
    if (!of_model_.empty())
      compare_with_model();
    else
      take_from_dataset();
  }

  void compare_with_model() {
    const Found model = look_at(of_model_.string());
    if (model.fingerprint.empty())
      result_.warnings.push_back(
          fmt::format("the tokenizer of the model's folder cannot be compared with that of {}: {}",
                      first().folder.string(), model.why_not));
    else if (!model.is(first().fingerprint))
      refuse(
          fmt::format("data: {}, and the model's folder holds another: {}; make the dataset with the model's, or "
                      "say which one text is to be read with: data.tokenizer = \"{}\"",
                      made(first()), named(of_model_.string(), model.fingerprint), first().name));
    else if (model.fingerprint != first().fingerprint)
      prefer_dataset();
  }

  // Checkpoints get the tokenizer's own files as long as they can be had: the files that weft makes of a GGUF file's
  // vocabulary have another fingerprint.
  void prefer_dataset() {
    if (has_kept() || why_lost(first()).empty()) take_from_dataset();
  }

  bool has_kept() const {
    const fs::path kept = kept_tokenizer(recipe_.run.dir);
    return !kept.empty() && look_at(kept.string()).fingerprint == first().fingerprint;
  }

  void take_from_dataset() {
    if (is_of_bytes(first())) return keep(kByte);
    if (has_kept()) return keep(kept_tokenizer(recipe_.run.dir).string());
    const std::string why = why_lost(first());
    if (why.empty()) return keep(first().name);
    const std::string text = fmt::format("{}, which is not there any more: {}", made(first()), why);
    if (has_texts(recipe_)) throw ConfigError(text + "; there are texts to read: name it in data.tokenizer");
    result_.warnings.push_back(text +
                               "; checkpoints will have no tokenizer: weft eval and weft generate will need "
                               "--tokenizer");
  }

  void explicitly() {
    result_ = of_named(recipe_);
    const std::string& name = recipe_.data.tokenizer;
    const Found here = look_at(name);
    for (const DatasetTokenizer& t : datasets_)
      if (!here.fingerprint.empty() && !here.is(t.fingerprint))
        result_.warnings.push_back(fmt::format(
            "{}, and data.tokenizer is another: {}; text is read with the latter, also by weft eval and weft generate",
            made(t), named(name, here.fingerprint)));
  }

  const Recipe& recipe_;
  const std::vector<DatasetTokenizer> datasets_;  // at least one
  const bool begun_;
  const fs::path of_model_;  // empty: the folder holds none
  RunTokenizer result_;
};

// The ids of the data must mean the same to a teacher that has a tokenizer. What data.tokenizer and the model's folder
// say has been compared before (read_teacher).
void compare_with_teacher(const Recipe& recipe, const std::vector<DatasetTokenizer>& datasets) {
  if (recipe.train.objective != ObjectiveKind::distill) return;
  for (const DatasetTokenizer& t : datasets) require_teacher_tokenizer(recipe, {t.fingerprint}, made(t));
  if (datasets.empty() && recipe.data.tokenizer == kAuto && has_texts(recipe) &&
      find_tokenizer(recipe.model.path).empty())
    require_teacher_tokenizer(recipe, {make_byte_tokenizer()->fingerprint()},
                              "texts are read as bytes, since model.path holds no tokenizer");
}

// Training on token files needs no tokenizer; its checkpoints get the model's, if weft can read it.
RunTokenizer of_token_files(const Recipe& recipe) {
  const fs::path model = recipe.model.path;
  if (!is_gguf(model) || find_tokenizer(model).empty()) return {};
  try {
    tokenizer_files(model);
    return {};
  } catch (const Error& e) {
    return {.warnings = {fmt::format("{}; checkpoints will have no tokenizer: weft eval and weft generate will need "
                                     "--tokenizer",
                                     e.what())}};
  }
}

// What text alone is read with: what the model's folder holds goes along by itself.
RunTokenizer of_texts(const Recipe& recipe, bool has_text_rows) {
  if (recipe.data.tokenizer != kAuto) return of_named(recipe);
  if (!has_texts(recipe) && !has_text_rows) return of_token_files(recipe);
  if (!find_tokenizer(recipe.model.path).empty()) return {};
  return {.path = kByte, .fingerprint = make_byte_tokenizer()->fingerprint()};
}

// The templates of datasets of conversations; none where the datasets are of texts.
ChatTemplateTexts templates_of(const std::vector<DatasetTokenizer>& datasets, RunTokenizer& result) {
  const DatasetTokenizer* first = nullptr;
  for (const DatasetTokenizer& t : datasets) {
    if (t.chat_templates.empty()) continue;
    if (first == nullptr) first = &t;
    if (t.chat_templates != first->chat_templates)
      result.warnings.push_back(fmt::format(
          "datasets {} and {} were rendered with different chat templates; checkpoints get those of the former",
          first->folder.string(), t.folder.string()));
  }
  return first == nullptr ? ChatTemplateTexts() : first->chat_templates;
}

// The checkpoints of a run on conversations get the templates that these were rendered with, whatever stands beside
// the tokenizer.
void add_chat_templates(const Recipe& recipe, const ChatTemplateTexts& templates, RunTokenizer& result) {
  if (templates.empty()) return;
  const std::string from = result.path.empty() ? recipe.model.path : result.path;
  if (from != kByte && templates_at(from) == templates) return;
  if (result.path.empty()) {
    if (find_tokenizer(from).empty()) return;  // of the tokenizer that is gone, which is told
    const std::string fingerprint = look_at(from).fingerprint;
    if (fingerprint.empty() && is_gguf(from)) return;  // no files can be made of it, which is told
    result.path = from;
    result.fingerprint = fingerprint;
  }
  result.chat_templates = templates;
}

// The tokenizer of the recipe's first dataset; none also if it cannot be read any more.
std::optional<DatasetTokenizer> dataset_of_run(const Recipe& recipe) {
  try {
    const auto datasets = tokenizers_of(recipe);
    return datasets.empty() ? std::nullopt : std::optional(datasets.front());
  } catch (const Error&) { return {}; }
}

}  // namespace

bool any_is_text(const std::vector<std::string>& entries) {
  return std::any_of(entries.begin(), entries.end(), is_text);
}

std::vector<DatasetTokenizer> dataset_tokenizers(const std::vector<std::string>& files, Datasets& datasets) {
  std::vector<DatasetTokenizer> all;
  for (const std::string& file : files) {
    if (is_text(file)) continue;
    const auto tokenizer = datasets.tokenizer_of(file);
    const auto same = [&](const DatasetTokenizer& t) { return t.folder == tokenizer->folder; };
    if (tokenizer && std::none_of(all.begin(), all.end(), same)) all.push_back(*tokenizer);
  }
  return all;
}

void require_vocabulary(const std::vector<DatasetTokenizer>& datasets, int64_t vocab_size) {
  for (const DatasetTokenizer& t : datasets)
    if (t.vocab_size > vocab_size)
      throw ConfigError(fmt::format(
          "data: {}, which has {} ids; the model's vocab_size is {}; make the dataset with the model's tokenizer, or "
          "train a model with a vocab_size of {} or more",
          made(t), t.vocab_size, vocab_size, t.vocab_size));
}

std::string text_tokenizer_of(const Recipe& recipe) {
  const std::string& name = recipe.data.tokenizer;
  if (name != kAuto) {
    std::error_code ignored;
    const fs::path copy = copy_of_run(recipe);
    return name == kByte || copy.empty() || fs::exists(name, ignored) ? name : copy.string();
  }
  if (!find_tokenizer(recipe.model.path).empty()) return kAuto;
  if (!has_texts(recipe)) return kAuto;
  const auto datasets = tokenizers_of(recipe);
  if (datasets.empty()) return kAuto;
  const fs::path kept = kept_tokenizer(recipe.run.dir);
  return kept.empty() ? datasets.front().name : kept.string();
}

RunTokenizer judge_tokenizer(const Recipe& recipe, int64_t vocab_size,
                             const std::optional<ChatTemplateTexts>& row_templates) {
  const std::vector<DatasetTokenizer> datasets = tokenizers_of(recipe);
  require_vocabulary(datasets, vocab_size);
  compare_with_teacher(recipe, datasets);
  RunTokenizer result =
      datasets.empty() ? of_texts(recipe, row_templates.has_value()) : Judge(recipe, datasets).result();
  add_chat_templates(recipe, row_templates ? *row_templates : templates_of(datasets, result), result);
  return result;
}

ChatTemplateTexts templates_at(const fs::path& tokenizer) {
  try {
    return chat::chat_template_texts(tokenizer);
  } catch (const Error&) { return {}; }
}

bool is_tokenizer_kept(const Recipe& recipe) {
  if (recipe.data.tokenizer == kAuto || !kept_tokenizer(recipe.run.dir).empty()) return true;
  try {
    return is_in_folder(recipe.data.tokenizer, recipe.model.path);
  } catch (const Error&) { return false; }
}

ModelTokenizer tokenizer_of_model(const fs::path& folder, const std::optional<Recipe>& trained,
                                  const std::string& given) {
  if (given != kAuto) return {.name = given, .note = ""};
  if (const auto own = tokenizer_in_checkpoint(folder); own && !own->empty()) {
    std::error_code ignored;
    if (fs::exists(folder / *own, ignored)) return {.name = (folder / *own).string(), .note = ""};
    throw ConfigError(
        fmt::format("{}: its tokenizer, {}, is gone; restore it, or give one by --tokenizer", folder.string(), *own));
  }
  if (trained && trained->data.tokenizer != kAuto) {
    const std::string& name = trained->data.tokenizer;
    const fs::path here = find_tokenizer(folder);
    std::error_code ignored;
    if (name != "byte" && !fs::exists(name, ignored) && !here.empty())
      throw ConfigError(
          fmt::format("{}: the tokenizer that the run was trained with is gone; {} may be the same: if it "
                      "is, say --tokenizer {}",
                      name, here.string(), here.string()));
    return {.name = name, .note = ""};
  }
  if (const fs::path file = find_tokenizer(folder); !file.empty()) return {.name = file.string(), .note = ""};
  if (trained) {
    if (const auto t = dataset_of_run(*trained)) {
      if (is_of_bytes(*t)) return {.name = "byte", .note = ""};
      if (const std::string why = why_lost(*t); !why.empty())
        throw ConfigError(
            fmt::format("{}: holds no tokenizer, and {}, which is not there any more: {}; give another "
                        "path of it by --tokenizer",
                        folder.string(), made(*t), why));
      return {.name = t->name, .note = ""};
    }
    // A text that is there still, and no folder that is not: then "auto" meant bytes in training too.
    const auto is_there = [](const std::string& entry) {
      std::error_code ignored;
      return is_text(entry) && fs::exists(entry, ignored);
    };
    const auto& train = trained->data.train;
    if (std::all_of(train.begin(), train.end(), is_there) && find_tokenizer(trained->model.path).empty())
      return {.name = "byte", .note = ""};
  }
  if (is_adapter_folder(folder))
    if (const fs::path file = find_tokenizer(base_of_adapter(folder, read_peft_config(folder))); !file.empty())
      return {.name = file.string(), .note = ""};
  return {.name = "byte",
          .note = fmt::format("{}: holds no tokenizer: text is read as bytes, which is a guess; --tokenizer PATH names "
                              "another, --tokenizer byte says that it is right",
                              folder.string())};
}

OpenedTokenizer reader_of_run(const Recipe& recipe, const ModelSpec& model, const std::string& key,
                              const std::string& what) {
  const std::string& folder = recipe.model.path;
  const ModelTokenizer name = tokenizer_of_model(folder, recipe, "auto");
  OpenedTokenizer reader{.tokenizer = open_tokenizer(name.name, folder, model.vocab_size), .note = {}};
  if (!name.note.empty())
    reader.note = fmt::format(
        "note: {}: {} holds no tokenizer: {} are read as bytes, which is a guess; data.tokenizer names another", key,
        folder, what);
  return reader;
}

std::vector<std::string> other_tokenizers(const std::vector<DatasetTokenizer>& datasets,
                                          const ModelTokenizer& tokenizer) {
  std::vector<std::string> lines;
  if (datasets.empty() || !tokenizer.note.empty()) return lines;
  const Found here = look_at(tokenizer.name);
  for (const DatasetTokenizer& t : datasets)
    if (!here.fingerprint.empty() && !here.is(t.fingerprint))
      lines.push_back(fmt::format("{}, the model's is another: {}", made(t), named(tokenizer.name, here.fingerprint)));
  return lines;
}

}  // namespace weft
