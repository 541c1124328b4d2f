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

// Opens (and tokenizes, where that is needed) what the recipe names. Throws FileError, ConfigError.
RunData open_run_data(const Recipe& recipe, const ModelSpec& model);

}  // namespace weft
