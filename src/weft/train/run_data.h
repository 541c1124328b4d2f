// The data of a run, as its recipe names it.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "weft/comm/communicator.h"
#include "weft/data/sample_order.h"
#include "weft/models/model_spec.h"
#include "weft/recipe/recipe.h"

namespace weft {

// A training file, as a run remembers it.
struct RunSource {
  std::string path;
  std::string contents;          // its fingerprint
  std::string dataset, version;  // the folder and version of its dataset; empty: it is of none
  bool operator==(const RunSource&) const = default;
};

struct RunData {
  std::shared_ptr<const TrainingSamples> train;
  std::shared_ptr<const EvalWindows> valid;                // null where nothing is held out
  std::shared_ptr<const TrainingSamples> valid_rows = {};  // likewise, where the objective reads pairs
  std::vector<RunSource> sources;                          // of train
  // The chat templates, by name, that rows of texts were rendered with; none: there were no such rows.
  std::optional<std::map<std::string, std::string>> row_templates = {};
  std::string warning = {};  // about rows
};

// What the recipe says of its training data. Throws as training_files_of (data_files.h).
DataSpec data_spec_of(const Recipe& recipe, int64_t vocab_size);

// The folder in the run's own where ids of its texts are kept that cannot be kept beside the texts: to be made again at
// any time, at the cost of tokenizing.
std::filesystem::path token_cache_of(const Recipe& recipe);

// That the files are there which the recipe names, before anything is made for the run. Throws FileError.
void require_run_data(const Recipe& recipe);

// Opens (and tokenizes, where that is needed) what the recipe names; `progress` hears how far a file is, from 0 to 1.
// Throws FileError, ConfigError; a token file that is not as its dataset's manifest says is a FileError.
// `begun`: as of DataSpec, of a phase.
using TokenizeProgress = std::function<void(std::string_view path, double done)>;
RunData open_run_data(const Recipe& recipe, const ModelSpec& model, const TokenizeProgress& progress = nullptr,
                      const std::vector<int64_t>& begun = {});

// The same on a rank: the first one makes the caches of tokenized text, and tells on the terminal how far it is; the
// others find them. Collective.
RunData open_rank_data(const Recipe& recipe, const ModelSpec& model, Communicator& world, int terminal_fd,
                       const std::vector<int64_t>& begun = {});

// The same where the objective reads rows, which needs no more of the model.
RunData open_row_data(const Recipe& recipe, int64_t vocab_size, const std::vector<int64_t>& begun = {});
// Judges them before anything is made for the run. Without samples where the objective reads no rows.
RunData judge_row_data(const Recipe& recipe);

// {"path", "contents", and of a dataset "dataset", "version"} for each, and back. Throws FileError.
nlohmann::json to_json(const std::vector<RunSource>& sources);
std::vector<RunSource> run_sources_of(const nlohmann::json& list, const std::string& where);

}  // namespace weft
