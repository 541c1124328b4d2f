#include "weft/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "weft/base/error.h"

namespace weft {
namespace {

// Closes on every way out: the mapping outlives the descriptor.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw FileError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno)));
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Not blocking: opening a named pipe would wait for its writer before fstat could refuse it.
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(path_, "cannot be read");
  struct stat info;
  if (::fstat(file.fd, &info) != 0) fail(path_, "cannot be read");
  if (!S_ISREG(info.st_mode)) throw FileError(fmt::format("{}: is not a regular file", path_.string()));
  if (info.st_size == 0) return;  // nothing to map, and mmap refuses it
  void* data = ::mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0);
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
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace weft
