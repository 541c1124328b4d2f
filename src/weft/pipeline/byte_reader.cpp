#include "weft/pipeline/byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/base/not_built.h"
#include "weft/pipeline/codec.h"

namespace weft {
namespace {

constexpr size_t kPiece = 1 << 18;
constexpr size_t kMagicBytes = 10;  // bytes that tell what a member is

class FileBytes final : public ByteReader {
 public:
  FileBytes(const std::filesystem::path& file, ByteWatcher* watcher) : file_(file), watcher_(watcher) {
    // Not blocking: opening a named pipe would wait for its writer before fstat could refuse it.
    fd_ = Descriptor(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (fd_ < 0 || fstat(fd_, &info) != 0) fail(std::strerror(errno));
    if (S_ISDIR(info.st_mode)) fail("is a folder");
    if (!S_ISREG(info.st_mode)) fail("is not a regular file");
  }

  size_t read(std::span<char> out) override {
    for (;;) {
      const ssize_t n = ::read(fd_, out.data(), out.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(std::strerror(errno));
      if (watcher_ != nullptr && n > 0) watcher_->saw({out.data(), size_t(n)});
      bytes_ += n;
      return size_t(n);
    }
  }
  int64_t bytes_in() const override { return bytes_; }

 private:
  [[noreturn]] void fail(const char* why) const {
    throw FileError(fmt::format("{}: cannot be read: {}", file_.string(), why));
  }

  std::filesystem::path file_;
  ByteWatcher* watcher_;
  Descriptor fd_;
  int64_t bytes_ = 0;
};

class MemoryBytes final : public ByteReader {
 public:
  explicit MemoryBytes(std::string_view bytes) : bytes_(bytes) {}
  size_t read(std::span<char> out) override {
    const size_t n = std::min(out.size(), bytes_.size() - at_);
    std::memcpy(out.data(), bytes_.data() + at_, n);
    at_ += n;
    return n;
  }
  int64_t bytes_in() const override { return int64_t(at_); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

// What pzstd and seekable files begin with (RFC 8878, section 3.1.2), and lz4 files may.
bool is_skippable_frame(std::string_view b) {
  return b.size() >= 4 && (b[0] & 0xf0) == 0x50 && b.substr(1, 3) == "\x2a\x4d\x18";
}

// Skips complete skippable frames at the beginning: the bytes behind them tell the format.
std::string_view without_skippable_frames(std::string_view b) {
  while (is_skippable_frame(b) && b.size() >= 8) {
    size_t size = 0;
    for (int i = 0; i < 4; ++i) size |= size_t(uint8_t(b[4 + size_t(i)])) << (8 * i);
    if (b.size() < 8 + size + 4) break;
    b.remove_prefix(8 + size);
  }
  return b;
}

// Decompresses where the first bytes say so; else hands the bytes on.
class Decompressed final : public ByteReader {
 public:
  Decompressed(std::unique_ptr<ByteReader> inner, ExpansionLimit limit, std::string source)
      : inner_(std::move(inner)), limit_(limit), source_(std::move(source)) {}

  size_t read(std::span<char> out) override {
    if (!began_) begin();
    if (!codec_) return read_plain(out);
    while (!done_) {
      if (left().empty() && !ended_) refill();
      if (at_member_start_ && left().empty()) {
        if (garbage_) throw Error("other bytes follow the compressed data");
        done_ = true;
        return 0;
      }
      const Codec::Step step = codec_->step(left(), out);
      at_ += step.taken;
      at_member_start_ = step.ended;
      if (step.ended) next_member();
      out_ += int64_t(step.made);
      check_limit();
      if (step.made > 0) return step.made;
      if (ended_ && left().empty() && !at_member_start_) throw Error("cut short: the compressed data ends too early");
      if (step.taken == 0 && !left().empty() && !step.ended) throw Error("broken compressed data");
    }
    return 0;
  }
  int64_t bytes_in() const override { return inner_->bytes_in(); }

 private:
  void begin() {
    began_ = true;
    while (buffer_.size() < kMagicBytes && !ended_) refill();
    const Compression kind = compression_of(without_skippable_frames(buffer_));
    if (kind != Compression::kNone) codec_ = make_codec(kind, source_);
  }
  std::string_view left() const { return std::string_view(buffer_).substr(at_); }
  void refill() {
    buffer_.erase(0, at_);
    at_ = 0;
    const size_t had = buffer_.size();
    buffer_.resize(had + kPiece);
    const size_t n = inner_->read({buffer_.data() + had, kPiece});
    buffer_.resize(had + n);
    ended_ = n == 0;
  }
  size_t read_plain(std::span<char> out) {
    if (left().empty()) return inner_->read(out);
    const size_t n = std::min(out.size(), left().size());
    std::memcpy(out.data(), left().data(), n);
    at_ += n;
    return n;
  }
  // Compressed files may be several, one after the other; zeros behind them are padding.
  void next_member() {
    codec_->begin_again();
    while (left().size() < kMagicBytes && !ended_) refill();
    if (left().empty() || compression_of(left()) != Compression::kNone) return;
    garbage_ = !std::all_of(left().begin(), left().end(), [](char c) { return c == 0; });
    at_ = buffer_.size();
    ended_ = true;
  }
  void check_limit() {
    const double most = limit_.max_ratio * double(std::max<int64_t>(inner_->bytes_in() - int64_t(left().size()), 1));
    if (out_ > limit_.free_bytes && double(out_) > most)
      throw Error(fmt::format("expands more than {:g}-fold: is it a bomb? (read.max_ratio)", limit_.max_ratio));
  }

  std::unique_ptr<ByteReader> inner_;
  ExpansionLimit limit_;
  std::string source_;
  std::unique_ptr<Codec> codec_;
  std::string buffer_;
  size_t at_ = 0;
  int64_t out_ = 0;
  bool began_ = false, ended_ = false, done_ = false, at_member_start_ = true, garbage_ = false;
};

}  // namespace

std::unique_ptr<Codec> make_codec(Compression kind, const std::string& source) {
  if (kind == Compression::kGzip) return make_gzip_codec(source);
  if (kind == Compression::kZstd) return make_zstd_codec(source);
  if (kind == Compression::kBzip2) return make_bzip2_codec(source);
  if (kind == Compression::kLz4) return make_lz4_codec(source);
  return make_xz_codec(source);
}

Compression compression_of(std::string_view b) {
  if (b.starts_with("\x1f\x8b")) return Compression::kGzip;
  if (b.starts_with("\x28\xb5\x2f\xfd")) return Compression::kZstd;
  if (is_skippable_frame(b)) return Compression::kZstd;
  if (b.starts_with(std::string_view("\xfd\x37zXZ\0", 6))) return Compression::kXz;
  if (b.starts_with("\x04\x22\x4d\x18")) return Compression::kLz4;
  // A block, or the end of a stream without any.
  if (b.starts_with("BZh") &&
      (b.substr(4).starts_with("1AY&SY") || b.substr(4).starts_with("\x17\x72\x45\x38\x50\x90")))
    return Compression::kBzip2;
  return Compression::kNone;
}

Compression compression_of_file(const std::filesystem::path& file) {
  std::string beginning(kMagicBytes, '\0');
  beginning.resize(FileBytes(file, nullptr).read(beginning));
  return compression_of(beginning);
}

Compression compression_named(const std::filesystem::path& file) {
  const std::string extension = file.extension().string();
  if (extension == ".gz") return Compression::kGzip;
  if (extension == ".zst") return Compression::kZstd;
  if (extension == ".bz2") return Compression::kBzip2;
  if (extension == ".lz4") return Compression::kLz4;
  return extension == ".xz" ? Compression::kXz : Compression::kNone;
}

std::filesystem::path without_compression(const std::filesystem::path& file) {
  return compression_named(file) == Compression::kNone ? file : file.parent_path() / file.stem();
}

std::unique_ptr<ByteReader> open_file_reader(const std::filesystem::path& file, ExpansionLimit limit,
                                             ByteWatcher* watcher) {
  return std::make_unique<Decompressed>(std::make_unique<FileBytes>(file, watcher), limit, file.string());
}

std::unique_ptr<ByteReader> open_memory_reader(std::string_view bytes, ExpansionLimit limit) {
  return std::make_unique<Decompressed>(std::make_unique<MemoryBytes>(bytes), limit, "a page");
}

std::string_view Input::peek(size_t wanted) {
  while (buffer_.size() - at_ < wanted && !ended_) {
    if (at_ > kPiece && at_ > buffer_.size() / 2) {
      buffer_.erase(0, at_);
      at_ = 0;
    }
    const size_t had = buffer_.size();
    buffer_.resize(had + kPiece);
    size_t n = 0;
    try {
      n = stream_->read({buffer_.data() + had, kPiece});
    } catch (const FileError&) { throw; } catch (const NotBuilt&) {
      throw;
    } catch (const Error& e) { failure_ = e.what(); }
    buffer_.resize(had + n);
    ended_ = n == 0;
  }
  return std::string_view(buffer_).substr(at_);
}

void Input::skip(size_t bytes) {
  WEFT_CHECK(bytes <= buffer_.size() - at_, "skips {} bytes of {}", bytes, buffer_.size() - at_);
  at_ += bytes;
  offset_ += int64_t(bytes);
}

size_t Input::find(std::string_view what, size_t from, size_t most) {
  for (;;) {
    std::string_view here = peek(from + what.size());
    const size_t found = here.find(what, from);
    if (found != std::string_view::npos) return found;
    if (here.size() > most) return std::string_view::npos;
    from = std::max(from, here.size() - std::min(here.size(), what.size() - 1));
    const size_t had = here.size();
    if (peek(had + 1).size() == had) return std::string_view::npos;
  }
}

}  // namespace weft
