#include "weft/pipeline/dataset_files.h"

#include <algorithm>

#include "weft/base/json.h"
#include "weft/pipeline/dataset.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokens = "tokens";  // the stage and its folder

[[noreturn]] void refuse(const fs::path& folder, const std::string& why) {
  throw FileError(fmt::format("{}: {}", folder.string(), why));
}

void require_manifest(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "manifest.json", ignored) && !fs::exists(folder / "stage.json", ignored)) return;
  if (fs::exists(folder / "stage.json", ignored))
    refuse(folder, fmt::format("is a stage of a dataset; name the dataset's folder, {}, or list token files",
                               fs::weakly_canonical(folder, ignored).parent_path().string()));
  if (fs::exists(folder / "read" / "stage.json", ignored))
    refuse(folder, "is a dataset that is not complete: there is no manifest.json; let `weft data run` finish it");
  refuse(folder, "is a folder, but no dataset of `weft data run`: there is no manifest.json; list the files in it");
}

Dataset open(const fs::path& folder) {
  try {
    return open_dataset(folder);
  } catch (const FileError& e) {
    throw FileError(fmt::format("{}; restore it, or run the pipeline again, which writes it anew", e.what()));
  }
}

const nlohmann::json& tokens_stage(const Dataset& dataset, const fs::path& folder) {
  for (const auto& stage : dataset.manifest.at("stages"))
    if (stage.at("stage") == kTokens) return stage;
  refuse(folder, "is a dataset without token files: its pipeline has no [tokens]; add that, and run it again");
}

// What training reads of a file.
bool is_read(const std::string& name) {
  const std::string suffix = fs::path(name).extension().string();
  return suffix == ".bin" || suffix == ".idx" || suffix == ".mask";
}

void require_sizes(const fs::path& folder, const nlohmann::json& tokens, const std::string& beginning) {
  for (const std::string& name : lost_files(folder / kTokens, tokens))
    if (name.starts_with(beginning) && is_read(name))
      throw FileError(fmt::format(
          "{}: is missing, or of another size than the manifest of dataset {} says; restore it, or run the pipeline "
          "again (`weft data audit {}` looks at all files)",
          (folder / kTokens / name).string(), folder.string(), folder.string()));
}

// The source of this file, which is added where it is new.
DatasetSource& source_of(const JsonFields& file, std::vector<DatasetSource>& sources) {
  DatasetSource one{.name = file.string("source", ""), .weight = {}, .files = {}};
  if (!one.name.empty()) one.weight = file.number("weight", {.min = 0});
  const auto same = [&](const DatasetSource& s) { return s.name == one.name; };
  const auto found = std::find_if(sources.begin(), sources.end(), same);
  if (found == sources.end()) return sources.emplace_back(std::move(one));
  if (found->weight != one.weight) file.fail("weight", "that of the other files of its source");
  return *found;
}

}  // namespace

std::vector<DatasetSource> dataset_sources(const fs::path& folder, DatasetPart part) {
  require_manifest(folder);
  const Dataset dataset = open(folder);
  const std::string where = (folder / "manifest.json").string();
  const nlohmann::json& tokens = tokens_stage(dataset, folder);
  const std::string beginning = part == DatasetPart::train ? "train-" : "valid-";
  require_sizes(folder, tokens, beginning);
  const JsonFields stage(tokens, where);
  std::vector<DatasetSource> sources;
  for (const auto& one : stage.list("files", "a list of token files")) {
    const JsonFields file(one, where);
    const std::string prefix = file.string("prefix");
    if (fs::path(prefix).filename() != prefix) file.fail("prefix", "the name of a file in the folder `tokens`");
    if (prefix.starts_with(beginning)) source_of(file, sources).files.push_back((folder / kTokens / prefix).string());
  }
  const bool mixed = std::any_of(sources.begin(), sources.end(), [&](auto& s) { return s.name.empty(); });
  if (mixed && sources.size() > 1) stage.fail("files", "files that all have a source with its weight, or none");
  if (!sources.empty()) return sources;
  refuse(folder, part == DatasetPart::train
                     ? "is a dataset without training documents; `weft data stats` says what was dropped"
                     : "is a dataset without held-out documents; set tokens.valid_fraction in its pipeline and run it "
                       "again, or hold samples out by data.valid_fraction");
}

}  // namespace weft
