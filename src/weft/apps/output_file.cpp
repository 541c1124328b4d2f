#include "weft/apps/output_file.h"

#include "weft/base/durable_file.h"
#include "weft/base/error.h"

namespace weft {

namespace fs = std::filesystem;

void prepare_output(const fs::path& file, bool again) {
  std::error_code error;
  if (fs::is_directory(file, error))
    throw ConfigError(fmt::format("--out {}: is a folder; name a file in it", file.string()));
  if (fs::exists(file, error) && !again)
    throw ConfigError(
        fmt::format("--out {}: is there already; choose another name, or --again to replace it", file.string()));
  const fs::path folder = file.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    fs::create_directories(folder, error);
    if (!error && !fs::is_directory(folder)) error = std::make_error_code(std::errc::not_a_directory);
    if (error)
      throw FileError(
          fmt::format("--out {}: the folder {} cannot be made: {}", file.string(), folder.string(), error.message()));
  }
  const DurableFile probe(file, kOwnName);  // that it can be created; removed again
}

}  // namespace weft
