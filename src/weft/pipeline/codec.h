// Decompressors: one library each, in a file of its own; codec_X_missing.cpp replaces it in a build without the
// library.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "weft/pipeline/byte_reader.h"

namespace weft {

// Turns bytes into bytes. For one thread.
class Codec {
 public:
  struct Step {
    size_t taken = 0, made = 0;
    bool ended = false;  // a whole member, frame or stream; another may follow
  };
  virtual ~Codec() = default;
  virtual Step step(std::string_view in, std::span<char> out) = 0;  // throws Error where the bytes are broken
  virtual void begin_again() = 0;
};

// Each throws NotBuilt, beginning with `source`, in a build without its library.
std::unique_ptr<Codec> make_gzip_codec(const std::string& source);
std::unique_ptr<Codec> make_zstd_codec(const std::string& source);
std::unique_ptr<Codec> make_xz_codec(const std::string& source);
std::unique_ptr<Codec> make_bzip2_codec(const std::string& source);
std::unique_ptr<Codec> make_lz4_codec(const std::string& source);  // lz4's frames
// `kind` is not kNone.
std::unique_ptr<Codec> make_codec(Compression kind, const std::string& source);

// One block becomes all of `out`. Throws Error where the block is broken or gives another number of bytes; NotBuilt,
// beginning with `source`.
void decompress_snappy(std::string_view block, std::span<char> out, const std::string& source);
void decompress_lz4(std::string_view block, std::span<char> out, const std::string& source);  // without a frame

// All of `text` as one frame of zstd. Throws NotBuilt.
std::string zstd_compressed(std::string_view text, int level);
// Throws NotBuilt where shards are to be compressed and cannot be.
void need_zstd(std::string_view what);

}  // namespace weft
