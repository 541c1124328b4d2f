// Any bytes as a safetensors file: refused with an Error, or every tensor in it can be read.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/safetensors.h"

namespace {

void read_all(const weft::SafetensorsHeader& header, std::string_view file) {
  int64_t end = 0;
  for (const weft::SafetensorsEntry& t : header.tensors) {
    if (t.begin != end || header.find(t.name) != &t) std::abort();
    end = t.end;
    const std::string_view bytes = file.substr(size_t(header.data_begin + t.begin), size_t(t.end - t.begin));
    if (t.num_elements() * bits_of(t.dtype) != int64_t(bytes.size()) * 8) std::abort();
    const int64_t rows = weft::matrix_rows(t.shape), cols = weft::matrix_cols(t.shape);
    if (!weft::is_convertible(t.dtype) || bytes.empty()) continue;
    std::vector<float> numbers(size_t(t.num_elements()));
    const weft::FileMatrix matrix{std::as_bytes(std::span(bytes)), t.dtype, rows, cols};
    weft::read_matrix(matrix, {}, {numbers.data(), weft::DType::f32, rows, cols, cols});
    weft::read_transposed(matrix, {}, {numbers.data(), weft::DType::f32, cols, rows, rows});
  }
  if (uint64_t(header.data_begin + end) != file.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    read_all(weft::parse_safetensors_header(file, "fuzz"), file);
  } catch (const weft::Error&) {}
  return 0;
}
