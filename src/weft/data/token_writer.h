// Token files, written so that they appear whole or not at all (docs/formats/token_files.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/id_view.h"

namespace weft {

// One file under a temporary name of its own until commit, so that two programs may write the same one. Buffered. All
// failures are FileErrors that name the path, the reason and what to do.
class WholeFile {
 public:
  explicit WholeFile(std::filesystem::path path);
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();  // without commit: removes what was written

  void write(std::string_view bytes);
  // Syncs, renames, syncs the folder's list of names. Blocks. Once.
  void commit();

 private:
  void flush();
  [[noreturn]] void fail(const char* what) const;  // with errno

  std::filesystem::path path_;
  std::string temporary_, buffer_;
  int fd_ = -1;
};

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
  WholeFile file_;
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
