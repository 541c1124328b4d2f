#include "weft/data/token_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "weft/base/error.h"
#include "weft/data/megatron_index.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBuffer = 1 << 20;
constexpr size_t kIdsAtOnce = 1 << 16;

IdType megatron_type(const std::string& dtype) {
  const IdType type = id_type_named(dtype);
  if (type == IdType::u32) throw ConfigError("Megatron's token files have no uint32; use int32");
  return type;
}

template <class T>
void put(WholeFile& out, T value) {
  out.write({reinterpret_cast<const char*>(&value), sizeof value});
}

}  // namespace

WholeFile::WholeFile(fs::path path) : path_(std::move(path)), temporary_(path_.string() + ".tmp-XXXXXX") {
  fd_ = mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) fail("cannot be created");
  constexpr mode_t kReadableByAll = 0644;  // a temporary file is its owner's alone
  if (fchmod(fd_, kReadableByAll) != 0 && errno != EPERM && errno != ENOSYS) {
    const int reason = errno;
    unlink(temporary_.c_str());
    close(fd_);
    errno = reason;
    fail("cannot be made readable");
  }
}

WholeFile::~WholeFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void WholeFile::write(std::string_view bytes) {
  buffer_ += bytes;
  if (buffer_.size() >= kBuffer) flush();
}

void WholeFile::flush() {
  for (size_t at = 0; at < buffer_.size();) {
    const ssize_t n = ::write(fd_, buffer_.data() + at, buffer_.size() - at);
    if (n > 0)
      at += size_t(n);
    else if (n == 0 || errno != EINTR)
      fail("cannot be written");
  }
  buffer_.clear();
}

void WholeFile::commit() {
  WEFT_CHECK(fd_ >= 0, "{} was committed already", path_.string());
  flush();
  if (fsync(fd_) != 0) fail("cannot be synced");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed");
  close(std::exchange(fd_, -1));
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  const int names = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (names < 0) return;  // a folder that may not be read cannot be synced; the file itself is
  fsync(names);
  close(names);
}

void WholeFile::fail(const char* what) const {
  const int reason = errno;
  const char* advice = reason == ENOSPC || reason == EDQUOT  ? "free space on that disk"
                       : reason == EACCES || reason == EROFS ? "make the folder writable, or choose another"
                                                             : "is the folder there and writable?";
  throw FileError(fmt::format("{}: {}: {}; {}", path_.string(), what, std::strerror(reason), advice));
}

RawTokenWriter::RawTokenWriter(const fs::path& file, const std::string& dtype)
    : path_(file), type_(id_type_named(dtype)), file_(file) {}

void RawTokenWriter::append(std::span<const int32_t> ids) {
  const int64_t most = largest_of(type_), each = bytes_of(type_);
  for (; !ids.empty(); ids = ids.subspan(std::min(ids.size(), kIdsAtOnce))) {
    bytes_.clear();
    for (int32_t id : ids.first(std::min(ids.size(), kIdsAtOnce))) {
      if (id < 0 || id > most)
        throw FileError(fmt::format("{}: id {} of token {} does not fit into {} bytes; choose a wider dtype",
                                    path_.string(), id, size_, each));
      bytes_.append(reinterpret_cast<const char*>(&id), size_t(each));
      ++size_;
    }
    file_.write(bytes_);
  }
}

MegatronWriter::MegatronWriter(const fs::path& prefix, const std::string& dtype)
    : prefix_(prefix), type_(megatron_type(dtype)), ids_(prefix.string() + ".bin", dtype) {}

void MegatronWriter::add_document(std::span<const int32_t> ids) {
  append(ids);
  end_document();
}

void MegatronWriter::end_document() {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  do {
    const int64_t size = std::min(kMost, ids_.size() - begin_);
    sizes_.push_back(int32_t(size));
    begin_ += size;
  } while (begin_ < ids_.size());
  ends_.push_back(int64_t(sizes_.size()));
}

void MegatronWriter::commit() {
  WholeFile out(prefix_.string() + ".idx");
  out.write({kMegatronMagic, sizeof kMegatronMagic});
  put(out, kMegatronVersion);
  put(out, type_ == IdType::u16 ? kMegatronUint16 : kMegatronInt32);
  put(out, uint64_t(sizes_.size()));
  put(out, uint64_t(ends_.size() + 1));
  for (int32_t size : sizes_) put(out, size);
  int64_t offset = 0;
  for (int32_t size : sizes_) {
    put(out, offset);
    offset += size * bytes_of(type_);
  }
  put(out, int64_t(0));
  for (int64_t end : ends_) put(out, end);
  out.commit();  // first: a .bin without its index would be taken for raw ids
  ids_.commit();
}

}  // namespace weft
