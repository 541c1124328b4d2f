// A file's bytes as they are when decompressed, one piece after the other: plain, gzip, zstd, xz, bzip2,
// lz4. Hostile files are held to limits.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// Guards against decompression bombs: after `free_bytes` of output, at most `max_ratio` bytes for each input byte.
struct ExpansionLimit {
  double max_ratio = 200;
  int64_t free_bytes = 16 << 20;
};

// One reader; for one thread.
class ByteReader {
 public:
  virtual ~ByteReader() = default;
  // Fills some of `out`, which is not empty; 0: the end. Throws Error that says why it cannot go on: cut short, broken,
  // beyond the limit. What came before is good. Throws FileError where the system cannot read the file: nobody knows
  // where it ends then. Throws NotBuilt where this build of weft cannot decompress it.
  virtual size_t read(std::span<char> out) = 0;
  // Bytes read so far from the file itself.
  virtual int64_t bytes_in() const = 0;
};

enum class Compression { kNone, kGzip, kZstd, kXz, kBzip2, kLz4 };
// Recognized by the first bytes.
Compression compression_of(std::string_view beginning);
// The same of a file. Throws FileError where it cannot be opened.
Compression compression_of_file(const std::filesystem::path& file);
// Recognized by the name: .gz, .zst, .xz, .bz2, .lz4.
Compression compression_named(const std::filesystem::path& file);
// The name without that ending.
std::filesystem::path without_compression(const std::filesystem::path& file);

// Called with each piece of the file itself, in order.
class ByteWatcher {
 public:
  virtual ~ByteWatcher() = default;
  virtual void saw(std::string_view bytes) = 0;
};

// Throws FileError where it cannot be opened or is no regular file. `watcher` may be null; else it outlives the reader.
std::unique_ptr<ByteReader> open_file_reader(const std::filesystem::path& file, ExpansionLimit limit,
                                             ByteWatcher* watcher);
// Reads bytes in memory, which must outlive the reader.
std::unique_ptr<ByteReader> open_memory_reader(std::string_view bytes, ExpansionLimit limit);

// A stream with a view of what comes next.
class Input {
 public:
  explicit Input(std::unique_ptr<ByteReader> stream) : stream_(std::move(stream)) {}

  // The next bytes: at least `wanted`, unless the file ends before. Valid until the next call. Throws FileError if the
  // system cannot read the file.
  std::string_view peek(size_t wanted);
  void skip(size_t bytes);  // of what was peeked at
  // The first place of `what` at or after `from` in the next bytes; npos if it is not within `most` bytes or the file
  // ends before.
  size_t find(std::string_view what, size_t from, size_t most);

  int64_t offset() const { return offset_; }  // of the next byte, in the decompressed file
  int64_t bytes_in() const { return stream_->bytes_in(); }
  // Why the file ended where it did; empty: it was all read.
  const std::string& failure() const { return failure_; }

 private:
  std::unique_ptr<ByteReader> stream_;
  std::string buffer_, failure_;
  size_t at_ = 0;
  int64_t offset_ = 0;
  bool ended_ = false;
};

}  // namespace weft
