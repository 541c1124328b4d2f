// The encodings of Parquet's pages: levels, indices and values, one after the other as they are asked for. What is
// broken throws Error.
//   https://github.com/apache/parquet-format/blob/master/Encodings.md
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/pipeline/parquet_schema.h"

namespace weft {

// Little-endian, of up to 8 bytes.
uint64_t little_endian(std::string_view bytes);

// Numbers of `width` bits (at most 32), in runs of equal ones and in packs.
class RunReader {
 public:
  RunReader(std::string_view bytes, int width);
  uint32_t next();

 private:
  void begin_run();

  std::string_view bytes_, pack_;
  int width_;
  uint64_t left_ = 0, bit_ = 0;  // of this run; in the pack
  bool packed_ = false;
  uint32_t value_ = 0;
};

// Numbers as differences to the ones before, in blocks (DELTA_BINARY_PACKED).
class DeltaReader {
 public:
  explicit DeltaReader(std::string_view bytes);
  int64_t next();
  // What follows the numbers. Takes a step for each block, not for each number.
  std::string_view rest() const;

 private:
  uint64_t varint();
  void begin_part();

  std::string_view bytes_, widths_, part_;
  uint64_t parts_ = 0, per_part_ = 0;  // of a block, which is cut into parts of one width each
  uint64_t left_ = 0;                  // numbers that were not given out
  uint64_t left_in_part_ = 0, bit_ = 0;
  size_t next_width_ = 0;
  uint64_t min_delta_ = 0, value_ = 0;
  int width_ = 0;
  bool first_ = true;
};

// Values that are named by a number.
class ParquetDictionary {
 public:
  // `bytes` holds `count` values in the encoding PLAIN.
  ParquetDictionary(std::string bytes, int64_t count, const ParquetLeaf& leaf);
  std::string_view value(uint32_t index) const;

 private:
  std::string bytes_;
  size_t width_, count_;
  std::vector<uint32_t> ends_;  // where values have no common width: behind each
};

class ParquetValues {
 public:
  virtual ~ParquetValues() = default;
  // The bytes of the next value: numbers little-endian, a boolean one byte. They hold until the next call.
  virtual std::string_view next() = 0;
};
// `bytes` and `dictionary` (null: there is none) outlive it.
std::unique_ptr<ParquetValues> make_parquet_values(int64_t encoding, std::string_view bytes, const ParquetLeaf& leaf,
                                                   const ParquetDictionary* dictionary);

// Appends one value as JSON writes it, whose bytes are as the column gives them. Text that is not UTF-8 stays as it is,
// which makes the row broken, as in JSON lines; bytes that are no text by their type and not UTF-8, and numbers that
// JSON has not, become null.
void append_parquet_value(std::string& json, const ParquetLeaf& leaf, std::string_view value);

}  // namespace weft
