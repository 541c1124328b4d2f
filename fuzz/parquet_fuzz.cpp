// Any bytes as a Parquet file: refused by name, or rows in order, each of which is JSON or broken; what cannot be read
// to its end says so.
#include <cstdint>
#include <cstdlib>

#include "memory_file.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"
#include "weft/pipeline/row_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file({reinterpret_cast<const char*>(data), size});
  constexpr int64_t kMostRow = 1 << 14;
  try {
    const auto rows = weft::read_parquet(file.path(), kMostRow, {.max_ratio = 50, .free_bytes = 1 << 20});
    int64_t number = 0, end = 0;
    for (weft::Row row; rows->next(row);) {
      if (row.number <= number || row.begin < end || row.end < row.begin) std::abort();
      number = row.number, end = row.end;
      if (!row.broken.empty()) continue;
      if (int64_t(row.bytes.size()) > kMostRow) std::abort();
      if (weft::utf8_error(row.bytes) != std::string::npos) continue;  // a text column that is none
      try {
        if (!weft::parse_json(row.bytes, "row").is_object()) std::abort();
      } catch (const weft::FileError& e) {  // a map may have a key twice
        if (std::string_view(e.what()).find("appears twice") == std::string_view::npos) std::abort();
      }
    }
  } catch (const weft::FileError&) {}
  return 0;
}
