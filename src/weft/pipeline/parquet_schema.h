// A Parquet file's footer, checked: its columns and where they lie.
//   https://github.com/apache/parquet-format
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class ParquetType : uint8_t { kBoolean, kInt32, kInt64, kInt96, kFloat, kDouble, kBytes, kFixed };
// What a value means, where its type does not say it all.
enum class ParquetForm { kPlain, kText, kUnsigned, kDecimal, kDate, kTime, kTimestamp, kFloat16, kUuid, kNone };

// A column: the values of a leaf of the schema.
struct ParquetLeaf {
  std::string path;  // "messages.list.element.role"
  ParquetType type = ParquetType::kBytes;
  ParquetForm form = ParquetForm::kPlain;
  int width = 0;                                 // bytes of a value; 0: as many as it says, and of kBoolean
  int scale = 0;                                 // of kDecimal
  int64_t per_second = 1;                        // of kTime and kTimestamp: ticks
  bool utc = false;                              // of kTimestamp
  int most_definition = 0, most_repetition = 0;  // an entry of that definition is a value
};

// A part of a row. An entry of its columns holds it if its definition is at least `definition`, else null.
struct ParquetNode {
  enum class Kind : uint8_t { kLeaf, kObject, kList, kMap };
  std::string name;
  Kind kind = Kind::kObject;
  int definition = 0;
  // In lists and maps: an entry of at least this definition holds an element; one of this repetition, a further one.
  int item_definition = 0, repetition = 0;
  size_t first_leaf = 0, end_leaf = 0;  // the columns of this part; there is at least one
  std::vector<ParquetNode> children;    // of an object its members, of a list its element, of a map key and value
};

enum class ParquetCodec : uint8_t { kNone, kSnappy, kGzip, kLzo, kBrotli, kLz4Hadoop, kZstd, kLz4 };

struct ParquetChunk {
  ParquetCodec codec = ParquetCodec::kNone;
  int64_t entries = 0;  // values and nulls
  int64_t begin = 0;    // of its first page, in the file
};
struct ParquetGroup {
  int64_t rows = 0;
  std::vector<ParquetChunk> chunks;  // of each leaf
};
struct ParquetFooter {
  ParquetNode root;
  std::vector<ParquetLeaf> leaves;
  std::vector<ParquetGroup> groups;
};

// Throws Error that says what is broken, or that weft does not read. `data_end`: where the footer begins; all chunks
// begin before it.
ParquetFooter parse_parquet_footer(std::string_view footer, int64_t data_end);

}  // namespace weft
