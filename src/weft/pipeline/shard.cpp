#include "weft/pipeline/shard.h"

#include <limits>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/pipeline/codec.h"
#include "weft/pipeline/input.h"

namespace weft {
namespace {

constexpr int kLevel = 1;  // a shard is read a few times and then forgotten

}  // namespace

std::string ShardWriter::commit(const std::filesystem::path& file) const {
  const bool zst = file.extension() == ".zst";
  const std::string bytes = zst ? zstd_compressed(lines_, kLevel) : std::string();
  const std::string_view content = zst ? bytes : lines_;
  write_file_durably(file, content, kOwnName);
  return to_hex(hash128(content));
}

void for_each_line_of(const std::filesystem::path& file,
                      const std::function<void(std::string_view line, int64_t number)>& take) {
  constexpr size_t kNoLimit = std::numeric_limits<size_t>::max() / 2;
  Input input(open_file_reader(file, {.max_ratio = std::numeric_limits<double>::infinity()}, nullptr));
  int64_t number = 0;
  while (!input.peek(1).empty()) {
    const size_t end = input.find("\n", 0, kNoLimit);
    if (end == std::string_view::npos) {
      const std::string why = input.failure().empty() ? "ends within a line" : input.failure();
      throw FileError(fmt::format("{}: line {}: {}; run the stage again", file.string(), number + 1, why));
    }
    take(input.peek(end).substr(0, end), ++number);
    input.skip(end + 1);
  }
  if (!input.failure().empty()) throw FileError(fmt::format("{}: {}", file.string(), input.failure()));
}

void for_each_in_shard(const std::filesystem::path& file, const std::function<void(Document&&)>& take) {
  for_each_line_of(file, [&](std::string_view line, int64_t number) {
    take(document_of_line(line, fmt::format("{}: line {}", file.string(), number)));
  });
}

}  // namespace weft
