// Reading GGUF files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/mapped_file.h"
#include "weft/gguf/gguf_header.h"

namespace weft {

// Whether `path` is a regular file that begins as GGUF files do, whatever its name. No errors.
bool is_gguf(const std::filesystem::path& path);

// One file, mapped. Opening it judges all of it (see parse_gguf_header); afterwards nothing can be out of bounds.
// Numbers are not judged: NaN and infinities are legal. Movable.
class GgufFile {
 public:
  // Throws FileError.
  explicit GgufFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<GgufTensor>& tensors() const { return header_.tensors; }
  const GgufTensor* find(std::string_view name) const { return header_.find(name); }
  GgufFields fields() const { return {header_.metadata, path().string()}; }

  // The bytes of a tensor of a type that weft reads; of others, none.
  std::span<const std::byte> bytes(const GgufTensor& tensor) const;
  // to[j] = the tensor's number in row `row`, column first_col + j. The range must be inside the tensor, else
  // CheckFailure. Throws FileError, naming the tensor, where its type is one that weft does not read.
  void read_row(const GgufTensor& tensor, int64_t row, int64_t first_col, std::span<float> to) const;
  void check_whole() const { file_.check_whole(); }  // see MappedFile: to be called once numbers have been read

 private:
  MappedFile file_;
  GgufHeader header_;
};

}  // namespace weft
