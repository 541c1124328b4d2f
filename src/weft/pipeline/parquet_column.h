// One column of a row group, entry by entry: a page at a time is in memory.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "weft/base/descriptor.h"
#include "weft/pipeline/byte_reader.h"
#include "weft/pipeline/codec.h"
#include "weft/pipeline/parquet_values.h"

namespace weft {

// A regular file, read at any place. For one thread.
class ParquetBytes {
 public:
  // Throws FileError where it cannot be opened.
  ParquetBytes(std::string path, ExpansionLimit limit);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Replaces `to`. Throws FileError where the system cannot read it; WEFT_CHECK that it is within the file.
  void read(int64_t begin, int64_t size, std::string& to);
  // For one page at a time: columns share it, as each of them would take 100 KB.
  Codec& codec(ParquetCodec kind);
  // Counts the bytes of the file that were used. Throws Error if they exceed the file: parts of it are named twice.
  void took(int64_t bytes);
  int64_t bytes_in() const { return in_; }
  // Counts the bytes unpacked from them: pages, and entries of rows. Throws Error at a decompression bomb.
  void unpacked(int64_t bytes) { judge(unpacked_ += bytes); }
  void made_row(int64_t bytes) { judge(rows_ += bytes); }

 private:
  void judge(int64_t made) const;

  std::string path_;
  ExpansionLimit limit_;
  Descriptor fd_;
  int64_t size_ = 0, in_ = 0, unpacked_ = 0, rows_ = 0;
  std::unique_ptr<Codec> gzip_, zstd_;
};

// Entries are values and nulls, with the levels that say where they belong. Throws Error where something is broken.
class ParquetColumn {
 public:
  // `leaf` and `file` outlive it. Its pages are before `data_end`.
  ParquetColumn(ParquetBytes& file, const ParquetLeaf& leaf, const ParquetChunk& chunk, int64_t data_end);

  bool at_end() const { return left_ == 0; }
  int definition() { return here().definition; }
  int repetition() { return here().repetition; }
  // The entry's value, if its definition is leaf.most_definition. Call once per entry.
  std::string_view value();
  void next();
  const ParquetLeaf& leaf() const { return leaf_; }

 private:
  struct Entry {
    int definition = 0, repetition = 0;
  };
  struct PageHeader {
    int64_t type = -1, size = -1, packed_size = -1, entries = -1, encoding = -1;
    int64_t definition_bytes = 0, repetition_bytes = 0, definition_encoding = 3, repetition_encoding = 3;
    std::optional<uint32_t> checksum;
    bool compressed = true;
  };

  Entry& here() {
    if (!loaded_) load();
    return entry_;
  }
  void load();
  void read_page();
  PageHeader read_header();
  void read_fields(std::string_view bytes, PageHeader& header, size_t& size) const;
  void unpack(const PageHeader& header, std::string_view levels);
  void decompress(std::string_view packed, std::span<char> out);
  void open_page(const PageHeader& header, bool second_version);

  ParquetBytes& file_;
  const ParquetLeaf& leaf_;
  ParquetCodec kind_;
  int64_t at_, end_;     // of the next page, in the file; where no page can be any more
  int64_t left_;         // entries of the chunk that were not passed
  int64_t on_page_ = 0;  // of those, on this page
  std::string packed_, page_;
  std::optional<ParquetDictionary> dictionary_;
  std::optional<RunReader> definitions_, repetitions_;
  std::unique_ptr<ParquetValues> values_;
  Entry entry_;
  bool loaded_ = false, value_taken_ = false;
};

}  // namespace weft
