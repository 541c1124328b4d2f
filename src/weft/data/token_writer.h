// Token files, written so that they appear whole or not at all (docs/formats/token_files.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "weft/base/durable_file.h"
#include "weft/data/id_view.h"

namespace weft {

// Raw little-endian ids: what open_raw_tokens reads.
class RawTokenWriter {
 public:
  RawTokenWriter(const std::filesystem::path& file, const std::string& dtype);
  // Throws FileError where an id does not fit the dtype.
  void append(std::span<const int32_t> ids);
  int64_t size() const { return size_; }  // tokens
  void commit() { file_.commit(); }

 private:
  std::filesystem::path path_;
  IdType type_;
  DurableFile file_;
  int64_t size_ = 0;
  std::string bytes_;
};

// PREFIX.bin and PREFIX.idx, byte for byte as Megatron's own tools write them, one sequence a document (more where it
// has 2^31 tokens and more). `dtype` is uint16 or int32, the two that they use.
class MegatronWriter {
 public:
  MegatronWriter(const std::filesystem::path& prefix, const std::string& dtype);
  void add_document(std::span<const int32_t> ids);
  // The same piece by piece.
  void append(std::span<const int32_t> ids) { ids_.append(ids); }
  void end_document();
  int64_t size() const { return ids_.size(); }  // tokens
  void commit();

 private:
  std::filesystem::path prefix_;
  IdType type_;
  RawTokenWriter ids_;
  int64_t begin_ = 0;  // of the document
  std::vector<int32_t> sizes_;
  std::vector<int64_t> ends_;  // sequences up to the end of each document
};

}  // namespace weft
