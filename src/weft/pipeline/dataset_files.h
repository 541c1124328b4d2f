// Finds a dataset's token files from its folder (docs/formats/sample_order.md).
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// Files that training walks as one source.
struct DatasetSource {
  std::string name;                // empty: all sources of the dataset, which have no weights
  std::optional<double> weight;    // at least 0
  std::vector<std::string> files;  // prefixes of Megatron pairs, each with its folder
};
enum class DatasetPart : uint8_t { train, valid };

// Those of a part, in the order of the manifest; at least one file. What is there is compared with the sizes that the
// manifest says, not with hashes. Throws FileError that says what to do: where the folder is no dataset, or none that
// is complete; its manifest is broken; it has no tokens, or none of the part; a file is missing or of another size.
std::vector<DatasetSource> dataset_sources(const std::filesystem::path& folder, DatasetPart part);

}  // namespace weft
