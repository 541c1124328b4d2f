// Values of Parquet as JSON writes them.
#pragma once
#include <string>
#include <string_view>

#include "weft/pipeline/parquet_schema.h"

namespace weft {

// Appends one value, whose bytes are as the column gives them. Text that is not UTF-8 stays as it is, which makes the
// row broken, as in JSON lines; bytes that are no text by their type and not UTF-8, and numbers that JSON has not,
// become null.
void append_parquet_value(std::string& json, const ParquetLeaf& leaf, std::string_view value);

}  // namespace weft
