#include "weft/train/run_tokenizer.h"

#include <algorithm>
#include <set>

#include "weft/base/error.h"
#include "weft/checkpoint/durable_file.h"
#include "weft/data/token_source.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/data_files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAuto = "auto";

bool is_of_bytes(const DatasetTokenizer& t) { return t.fingerprint == make_byte_tokenizer()->fingerprint(); }

bool is_text(const std::string& entry) {
  std::error_code ignored;
  return !is_megatron(entry) && fs::path(entry).extension() != ".bin" && !fs::is_directory(entry, ignored);
}

// Of all of data.train and data.valid.
std::vector<DatasetTokenizer> tokenizers_of(const Recipe& recipe) {
  std::vector<std::string> files = training_files_of(recipe).paths;
  const std::vector<std::string> valid = validation_files_of(recipe.data.valid).paths;
  files.insert(files.end(), valid.begin(), valid.end());
  Datasets datasets;
  return dataset_tokenizers(files, datasets);
}
bool has_texts(const Recipe& recipe) { return any_is_text(recipe.data.train) || any_is_text(recipe.data.valid); }

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
};
Found look_at(const std::string& path) {
  try {
    return {.fingerprint = read_tokenizer(path)->fingerprint(), .why_not = ""};
  } catch (const Error& e) { return {.fingerprint = "", .why_not = e.what()}; }
}

// Why the dataset's tokenizer cannot be had where the dataset says; empty: it can.
std::string why_lost(const DatasetTokenizer& t) {
  const Found now = look_at(t.name);
  if (now.fingerprint == t.fingerprint) return "";
  return now.fingerprint.empty() ? now.why_not : fmt::format("{} is now another, {}", t.name, now.fingerprint);
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
    else if (!is_of_bytes(first()))
      take_from_dataset();
  }

  void compare_with_model() {
    const Found model = look_at(of_model_.string());
    if (model.fingerprint.empty())
      result_.warnings.push_back(
          fmt::format("the tokenizer of the model's folder cannot be compared with that of {}: {}",
                      first().folder.string(), model.why_not));
    else if (model.fingerprint != first().fingerprint)
      refuse(
          fmt::format("data: {}, and the model's folder holds another: {}; make the dataset with the model's, or "
                      "say which one text is to be read with: data.tokenizer = \"{}\"",
                      made(first()), named(of_model_.string(), model.fingerprint), first().name));
  }

  void take_from_dataset() {
    const fs::path kept = kept_tokenizer(recipe_.run.dir);
    if (!kept.empty() && look_at(kept.string()).fingerprint == first().fingerprint) return keep(kept.string());
    const std::string why = why_lost(first());
    if (why.empty()) return keep(first().name);
    const std::string text = fmt::format("{}, which is not there any more: {}", made(first()), why);
    if (has_texts(recipe_)) throw ConfigError(text + "; there are texts to read: name it in data.tokenizer");
    result_.warnings.push_back(text +
                               "; checkpoints will have no tokenizer: weft eval and weft generate will need "
                               "--tokenizer");
  }

  void explicitly() {
    const std::string& name = recipe_.data.tokenizer;
    const Found here = look_at(name);
    if (here.fingerprint.empty()) {
      result_.warnings.push_back(fmt::format(
          "data.tokenizer = \"{}\" cannot be read: {}; weft eval and weft generate will need it", name, here.why_not));
      if (const fs::path kept = kept_tokenizer(recipe_.run.dir); !kept.empty()) keep(kept.string());
      return;
    }
    for (const DatasetTokenizer& t : datasets_)
      if (t.fingerprint != here.fingerprint)
        result_.warnings.push_back(fmt::format(
            "{}, and data.tokenizer is another: {}; text is read with the latter, also by weft eval and weft "
            "generate",
            made(t), named(name, here.fingerprint)));
    if (here.fingerprint != first().fingerprint || is_of_bytes(first())) return;
    if (of_model_.empty() || look_at(of_model_.string()).fingerprint != here.fingerprint) keep(name);
  }

  const Recipe& recipe_;
  const std::vector<DatasetTokenizer> datasets_;  // at least one
  const bool begun_;
  const fs::path of_model_;  // empty: the folder holds none
  RunTokenizer result_;
};

// Of the first dataset of a recipe; none also where it cannot be read any more.
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
  if (recipe.data.tokenizer != kAuto || !find_tokenizer(recipe.model.path).empty()) return recipe.data.tokenizer;
  if (!has_texts(recipe)) return kAuto;
  const auto datasets = tokenizers_of(recipe);
  if (datasets.empty()) return kAuto;
  const fs::path kept = kept_tokenizer(recipe.run.dir);
  return kept.empty() ? datasets.front().name : kept.string();
}

RunTokenizer judge_tokenizer(const Recipe& recipe, int64_t vocab_size) {
  std::vector<DatasetTokenizer> datasets = tokenizers_of(recipe);
  if (datasets.empty()) return {};
  require_vocabulary(datasets, vocab_size);
  return Judge(recipe, std::move(datasets)).result();
}

namespace {

// The folder is weft's; what somebody has put there is not.
void refuse_other_files(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  std::set<std::string> own;
  if (!find_tokenizer(folder).empty())
    for (const TokenizerFile& file : tokenizer_files(folder)) own.insert(file.name);
  for (const auto& entry : fs::directory_iterator(folder))
    if (!own.count(entry.path().filename().string()))
      throw FileError(fmt::format("{}: is no file of the run's tokenizer, which weft keeps in this folder; move it",
                                  entry.path().string()));
}

}  // namespace

std::optional<std::string> keep_tokenizer(const RunTokenizer& tokenizer, const fs::path& run) {
  const fs::path folder = run / "tokenizer";
  std::error_code ignored;
  if (tokenizer.path == folder) return {};
  refuse_other_files(folder);
  if (tokenizer.path.empty()) {
    fs::remove_all(folder, ignored);
    return {};
  }
  DurableFolder made(folder);
  std::error_code error;
  fs::create_directories(made.building(), error);
  for (const TokenizerFile& file : tokenizer_files(tokenizer.path))
    if (!error) fs::copy_file(file.from, made.building() / file.name, error);
  if (error)
    throw FileError(fmt::format("{}: the tokenizer {} cannot be copied there: {}", folder.string(), tokenizer.path,
                                error.message()));
  if (look_at(made.building().string()).fingerprint != tokenizer.fingerprint) {
    fs::remove_all(folder, ignored);
    return fmt::format(
        "the files of tokenizer {} would be another by themselves: checkpoints will have none, and weft "
        "eval and weft generate will need --tokenizer {}",
        tokenizer.path, tokenizer.path);
  }
  made.commit();
  return {};
}

fs::path kept_tokenizer(const fs::path& run) {
  std::error_code ignored;
  const fs::path folder = run / "tokenizer";
  return fs::is_directory(folder, ignored) ? folder : fs::path();
}

ModelTokenizer tokenizer_of_model(const fs::path& folder, const std::optional<Recipe>& trained,
                                  const std::string& given) {
  if (given != kAuto) return {.name = given, .note = ""};
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
  return {.name = "byte",
          .note = fmt::format("{}: holds no tokenizer: text is read as bytes, which is a guess; --tokenizer PATH names "
                              "another, --tokenizer byte says that it is right",
                              folder.string())};
}

std::vector<std::string> other_tokenizers(const std::vector<DatasetTokenizer>& datasets,
                                          const ModelTokenizer& tokenizer) {
  std::vector<std::string> lines;
  if (datasets.empty() || !tokenizer.note.empty()) return lines;
  const std::string here = look_at(tokenizer.name).fingerprint;
  for (const DatasetTokenizer& t : datasets)
    if (!here.empty() && t.fingerprint != here)
      lines.push_back(fmt::format("{}, the model's is another: {}", made(t), named(tokenizer.name, here)));
  return lines;
}

}  // namespace weft
