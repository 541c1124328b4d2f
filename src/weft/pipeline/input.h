// A stream with a view of what comes next.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "weft/pipeline/byte_reader.h"

namespace weft {

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
