#include "weft/gguf/gguf_file.h"

#include <algorithm>
#include <fstream>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/gguf/gguf_blocks.h"

namespace weft {

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

GgufFile::GgufFile(const std::filesystem::path& path)
    : file_(path), header_(parse_gguf_header(file_.text(), path.string())) {}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& t) const {
  return t.end < 0 ? std::span<const std::byte>() : file_.bytes().subspan(size_t(t.begin), size_t(t.end - t.begin));
}

void GgufFile::read_row(const GgufTensor& tensor, int64_t row, int64_t first_col, std::span<float> to) const {
  const GgufTypeInfo* type = find_gguf_type(tensor.type);
  if (type == nullptr)
    throw FileError(
        fmt::format("{}: tensor {} is of type {}; weft reads F32, F16, BF16, Q8_0, Q5_0, Q4_0, Q6_K, "
                    "Q4_K and MXFP4: convert the model to one of these",
                    path().string(), in_quotes(tensor.name), tensor.type));
  const auto count = int64_t(to.size());
  WEFT_CHECK(row >= 0 && row < tensor.rows() && first_col >= 0 && count <= tensor.cols() - first_col,
             "{} numbers at ({}, {}) of {}", count, row, first_col, tensor.name);
  const int64_t block = type->block, row_bytes = tensor.cols() / block * type->bytes;
  const int64_t first = first_col / block, end = (first_col + count + block - 1) / block;
  const auto blocks =
      bytes(tensor).subspan(size_t(row * row_bytes + first * type->bytes), size_t((end - first) * type->bytes));
  if (first * block == first_col && end * block == first_col + count) return decode_blocks(type->type, blocks, to);
  std::vector<float> whole(size_t((end - first) * block));
  decode_blocks(type->type, blocks, whole);
  std::copy_n(whole.begin() + (first_col - first * block), count, to.begin());
}

}  // namespace weft
