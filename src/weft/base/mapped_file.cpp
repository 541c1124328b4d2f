#include "weft/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"

namespace weft {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw FileError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno)));
}

size_t page_bytes() { return size_t(::sysconf(_SC_PAGESIZE)); }
size_t whole_pages(size_t bytes) { return (bytes + page_bytes() - 1) / page_bytes() * page_bytes(); }
static_assert(sizeof(MappedFileNote) <= 4096, "the note takes a page");

MappedFileNote note_of(const struct stat& file, const std::string& path) {
  MappedFileNote note{.mark = MappedFileNote::kMark,
                      .device = uint64_t(file.st_dev),
                      .inode = uint64_t(file.st_ino),
                      .bytes = int64_t(file.st_size)};
  path.copy(note.path, sizeof note.path - 1);
  return note;
}

// Its start, or MAP_FAILED: the file, and a page behind it with the note.
void* map_with_note(int fd, const MappedFileNote& note) {
  const size_t file_bytes = whole_pages(size_t(note.bytes)), all_bytes = file_bytes + page_bytes();
  void* const all = ::mmap(nullptr, all_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return MAP_FAILED;
  void* const behind = static_cast<std::byte*>(all) + file_bytes;
  if (::mmap(all, size_t(note.bytes), PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED ||
      ::mprotect(behind, page_bytes(), PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    ::munmap(all, all_bytes);
    errno = error;
    return MAP_FAILED;
  }
  new (behind) MappedFileNote(note);
  return all;
}

}  // namespace

std::string shortened_text(const MappedFileNote& note) {
  struct stat now;
  if (::stat(note.path, &now) != 0 || uint64_t(now.st_dev) != note.device || uint64_t(now.st_ino) != note.inode ||
      now.st_size >= note.bytes)
    return "";
  return fmt::format(
      "{}: had {} bytes when it was opened, and has {} now: something has shortened it while weft read it; put the "
      "whole file back, and run the same command again",
      note.path, note.bytes, int64_t(now.st_size));
}

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Not blocking: opening a named pipe would wait for its writer before fstat could refuse it.
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file < 0) fail(path_, "cannot be read");
  struct stat info;
  if (::fstat(file, &info) != 0) fail(path_, "cannot be read");
  if (!S_ISREG(info.st_mode)) throw FileError(fmt::format("{}: is not a regular file", path_.string()));
  if (info.st_size == 0) return;  // nothing to map, and mmap refuses it
  void* data = map_with_note(file, note_of(info, path_.string()));
  if (data == MAP_FAILED) fail(path_, "cannot be mapped into memory");
  bytes_ = {static_cast<const std::byte*>(data), size_t(info.st_size)};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  path_ = std::move(other.path_);
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), whole_pages(bytes_.size()) + page_bytes());
}

const MappedFileNote& MappedFile::note() const {
  return *reinterpret_cast<const MappedFileNote*>(bytes_.data() + whole_pages(bytes_.size()));
}

void MappedFile::check_whole() const {
  if (bytes_.empty()) return;
  if (const std::string text = shortened_text(note()); !text.empty()) throw FileError(text);
}

}  // namespace weft
