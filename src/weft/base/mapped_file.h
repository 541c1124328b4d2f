// A file's bytes, mapped read-only: pages come in when touched, and nothing is copied.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace weft {

// Owns one mapping. Movable; spans into it stay valid until it is destroyed.
// The file must not be shortened meanwhile: touching a page beyond its end is a bus error (as for any mmap).
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

 private:
  void unmap();

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace weft
