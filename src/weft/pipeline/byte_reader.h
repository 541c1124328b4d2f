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

}  // namespace weft
