#include "weft/base/plain_file.h"

#include "weft/base/error.h"

namespace weft {

namespace fs = std::filesystem;

bool is_plain_file(const fs::path& file, int64_t most_bytes) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (error) throw FileError(fmt::format("{}: cannot be looked at: {}", file.string(), error.message()));
  if (!fs::is_regular_file(status)) throw FileError(fmt::format("{}: is no regular file", file.string()));
  const auto bytes = fs::file_size(file, error);
  if (error) throw FileError(fmt::format("{}: cannot be looked at: {}", file.string(), error.message()));
  if (int64_t(bytes) > most_bytes)
    throw FileError(
        fmt::format("{}: has {} bytes, more than the {} that such a file may have", file.string(), bytes, most_bytes));
  return true;
}

}  // namespace weft
