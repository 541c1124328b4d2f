#include "weft/checkpoint/shared_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/checkpoint/word_sum.h"

namespace weft {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;

[[noreturn]] void fail_at(const std::filesystem::path& path, const char* what) {
  throw FileError(fmt::format("{}: cannot {}: {}; free space or choose another run.dir", path.string(), what,
                              std::strerror(errno)));
}

enum class DataRoom : uint8_t { none, full };

void create_with(const std::filesystem::path& folder, const SafetensorsLayout& layout, DataRoom room) {
  for (const SafetensorsLayout::File& file : layout.files()) {
    const std::filesystem::path path = folder / file.name;
    const Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (fd < 0) fail_at(path, "be created");
    if (::pwrite(fd, file.head.data(), file.head.size(), 0) != ssize_t(file.head.size()) ||
        (room == DataRoom::full && ::ftruncate(fd, file.bytes) != 0))
      fail_at(path, "be written");
  }
  if (!layout.index().empty()) write_file_durably(folder / "model.safetensors.index.json", layout.index());
}

}  // namespace

void create_files(const std::filesystem::path& folder, const SafetensorsLayout& layout) {
  create_with(folder, layout, DataRoom::full);
}

void create_heads(const std::filesystem::path& folder, const SafetensorsLayout& layout) {
  create_with(folder, layout, DataRoom::none);
}

SharedWriter::SharedWriter(const std::filesystem::path& folder, const SafetensorsLayout& layout)
    : folder_(folder), layout_(layout), fds_(layout.files().size()), sums_(layout.num_tensors(), 0) {
  buffer_.reserve(kBufferBytes);
}

SharedWriter::SharedWriter(const std::filesystem::path& folder, const SafetensorsLayout& layout,
                           std::span<std::byte> room)
    : folder_(folder),
      layout_(layout),
      fds_(layout.files().size()),
      sums_(layout.num_tensors(), 0),
      holds_(true),
      room_(room) {}

void SharedWriter::fail(size_t file, const char* what) const { fail_at(folder_ / layout_.files()[file].name, what); }

void SharedWriter::write(std::string_view tensor, int64_t offset, std::span<const std::byte> bytes) {
  const SafetensorsLayout::Place place = layout_.find(tensor);
  WEFT_CHECK(offset >= 0 && offset + int64_t(bytes.size()) <= place.bytes, "bytes [{}, {}) of {}, which has {}", offset,
             offset + int64_t(bytes.size()), tensor, place.bytes);
  const int64_t word = place.word_bytes;
  WEFT_CHECK(offset % word == 0 && (int64_t(bytes.size()) % word == 0 || offset + int64_t(bytes.size()) == place.bytes),
             "bytes [{}, {}) of {} cut a word", offset, offset + int64_t(bytes.size()), tensor);
  sums_[place.number] += word == 1 ? byte_sum(bytes, offset) : word_sum(bytes, offset / 4);
  const int64_t at = place.offset + offset;
  if (holds_) return hold(place.file, at, bytes);
  const bool follows = place.file == buffered_file_ && at == buffered_at_ + int64_t(buffer_.size());
  if (!follows || buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) return write_at(place.file, at, bytes);
  if (buffer_.empty()) buffered_file_ = place.file, buffered_at_ = at;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void SharedWriter::hold(size_t file, int64_t at, std::span<const std::byte> bytes) {
  WEFT_CHECK(held_ + int64_t(bytes.size()) <= int64_t(room_.size()),
             "{} bytes more in a room of {}, of which {} are taken", bytes.size(), room_.size(), held_);
  std::memcpy(room_.data() + held_, bytes.data(), bytes.size());
  held_ += int64_t(bytes.size());
  if (!runs_.empty() && runs_.back().file == file && runs_.back().at + runs_.back().bytes == at)
    runs_.back().bytes += int64_t(bytes.size());
  else
    runs_.push_back({file, at, int64_t(bytes.size())});
}

void SharedWriter::write_held() {
  int64_t from = 0;
  for (const Held& run : runs_) {
    write_at(run.file, run.at, room_.subspan(size_t(from), size_t(run.bytes)));
    from += run.bytes;
  }
}

void SharedWriter::flush() {
  if (!buffer_.empty()) write_at(buffered_file_, buffered_at_, buffer_);
  buffer_.clear();
}

void SharedWriter::write_at(size_t file, int64_t offset, std::span<const std::byte> bytes) {
  Descriptor& fd = fds_[file];
  if (fd < 0) fd = Descriptor(::open((folder_ / layout_.files()[file].name).c_str(), O_WRONLY | O_CLOEXEC));
  if (fd < 0) fail(file, "be opened");
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(file, "be written");
    offset += n;
    bytes = bytes.subspan(size_t(n));
  }
}

void SharedWriter::sync() {
  flush();
  for (size_t file = 0; file < fds_.size(); ++file)
    if (fds_[file] >= 0 && ::fsync(fds_[file]) != 0) fail(file, "be synced");
}

}  // namespace weft
