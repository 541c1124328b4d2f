// Writing the files of a layout together: one rank creates them, then every rank writes the parts that it has.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "weft/base/descriptor.h"
#include "weft/checkpoint/safetensors_layout.h"

namespace weft {

// Creates the files of `layout` in `folder`: heads, and room for the data; and the index, if there is one. Throws
// FileError.
void create_files(const std::filesystem::path& folder, const SafetensorsLayout& layout);
// The same without room for the data: files that end behind their heads.
void create_heads(const std::filesystem::path& folder, const SafetensorsLayout& layout);

// Not thread-safe. All failures are FileErrors that name the path, the reason and what to do.
class SharedWriter {
 public:
  // The files must have been created.
  SharedWriter(const std::filesystem::path& folder, const SafetensorsLayout& layout);
  // What is given to write is only copied into `room`, which must be large enough, and written by write_held. Both, and
  // the layout, must stay.
  SharedWriter(const std::filesystem::path& folder, const SafetensorsLayout& layout, std::span<std::byte> room);

  // Bytes [offset, offset + bytes.size()) of a tensor's data: whole words (TensorInFile::word_bytes), each once by one
  // rank. Runs that follow each other are written together.
  void write(std::string_view tensor, int64_t offset, std::span<const std::byte> bytes);
  int64_t held() const { return held_; }  // bytes of the room
  // What is held: `bytes` from byte `at` of a file on, one run behind the other in the room.
  struct Held {
    size_t file;
    int64_t at, bytes;
  };
  const std::vector<Held>& runs() const { return runs_; }
  // Any thread may call it, when all was given. Blocks.
  void write_held();
  // All that was written is on the disk. Blocks.
  void sync();
  // The word_sum of what was given to write, of each tensor, numbered as in the layout.
  const std::vector<uint64_t>& sums() const { return sums_; }

 private:
  void flush();
  void hold(size_t file, int64_t at, std::span<const std::byte> bytes);
  void write_at(size_t file, int64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void fail(size_t file, const char* what) const;  // with errno

  const std::filesystem::path folder_;
  const SafetensorsLayout& layout_;
  std::vector<Descriptor> fds_;  // none: not opened yet
  std::vector<std::byte> buffer_;
  size_t buffered_file_ = 0;
  int64_t buffered_at_ = 0;
  std::vector<uint64_t> sums_;
  const bool holds_ = false;
  std::span<std::byte> room_;
  int64_t held_ = 0;
  std::vector<Held> runs_;  // of the room, one behind the other
};

}  // namespace weft
