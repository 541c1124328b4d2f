// A file's bytes, mapped read-only: pages come in when touched, and nothing is copied.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// Which file is mapped, and how long it was then.
struct MappedFileNote {
  uint64_t mark = 0;  // kMark
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0;
  char path[3072] = "";  // as it was given; cut where it is longer
  static constexpr uint64_t kMark = 0x77656674'6d6170ffu;
};
// A FileError's message if that file is shorter now. Empty if it is not, or if another file has the path (a mapping
// keeps its own file).
std::string shortened_text(const MappedFileNote& note);

// Owns one mapping. Movable; spans into it stay valid until it is destroyed.
//
// If somebody shortens the file meanwhile, the rest of its last page reads as zeros, which check_whole() finds, and
// touching a page beyond is a bus error, as for any mmap. A MappedFileNote in the page behind the mapping tells a
// handler of that signal which file it was (apps/lost_file.cpp).
class MappedFile {
 public:
  // Throws FileError with the reason where `path` cannot be opened, is no regular file, or cannot be mapped.
  explicit MappedFile(std::filesystem::path path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  // Throws FileError where the file has been shortened: what was read from bytes() before may be zeros. About a
  // microsecond.
  void check_whole() const;

 private:
  void unmap();
  const MappedFileNote& note() const;

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;  // behind whose last page the note stands
};

}  // namespace weft
