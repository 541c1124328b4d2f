// The data of a run, as its recipe names it.
#pragma once
#include <functional>
#include <memory>
#include <string_view>

#include "weft/data/data_stream.h"
#include "weft/data/eval_windows.h"
#include "weft/models/model_spec.h"
#include "weft/recipe/recipe.h"

namespace weft {

struct RunData {
  std::unique_ptr<DataStream> train;
  std::unique_ptr<EvalWindows> valid;  // null where nothing is held out
};

// Opens (and tokenizes, where that is needed) what the recipe names; `progress` hears how far a file is, from 0 to 1.
// Throws FileError, ConfigError.
using TokenizeProgress = std::function<void(std::string_view path, double done)>;
RunData open_run_data(const Recipe& recipe, const ModelSpec& model, const TokenizeProgress& progress = nullptr);

}  // namespace weft
