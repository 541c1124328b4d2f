// Shards: files of documents between stages, a line of JSON each, compressed with zstd or plain.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "weft/pipeline/document.h"

namespace weft {

// Collects lines in memory and writes them as one file, whole or not at all.
class ShardWriter {
 public:
  void add(const Document& document) { lines_ += to_line(document); }
  void add_line(std::string_view json) { (lines_ += json) += '\n'; }
  bool empty() const { return lines_.empty(); }
  // Compressed where the name ends with .zst. Returns the file's hash. Throws FileError.
  std::string commit(const std::filesystem::path& file) const;

 private:
  std::string lines_;
};

// Each document of a shard, in order. Throws FileError that names the line.
void for_each_in_shard(const std::filesystem::path& file, const std::function<void(Document&&)>& take);
// Each line of such a file.
void for_each_line_of(const std::filesystem::path& file,
                      const std::function<void(std::string_view line, int64_t number)>& take);

}  // namespace weft
