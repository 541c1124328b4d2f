// The files that a recipe's data is: folders of datasets stand for their token files (docs/formats/sample_order.md).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

// As DataSpec takes them.
struct DataFiles {
  std::vector<std::string> paths;
  std::vector<int64_t> files_of_source = {};
  std::vector<double> weights = {};  // of each source; empty: all are walked as one
  bool operator==(const DataFiles&) const = default;
};

// The files of data.train, with data.weights. An entry that is no folder stays as it is named, there or not. Reads the
// manifests of datasets. Throws FileError (dataset_sources), and ConfigError where sources of datasets have weights
// that say nothing beside other entries.
DataFiles training_files_of(const Recipe& recipe);
// The files of data.valid, or of such entries: a dataset gives its held-out files.
DataFiles validation_files_of(const std::vector<std::string>& entries);

// Whether two recipes mean the same files, in the same order and with the same weights, however they name them. False
// where what one of them names cannot be read.
bool have_the_same_files(const Recipe& a, const Recipe& b);

}  // namespace weft
