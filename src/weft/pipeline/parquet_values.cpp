#include "weft/pipeline/parquet_values.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/varint.h"

namespace weft {
namespace {

[[noreturn]] void fail_short() { throw Error("broken page: its values end too early"); }

std::string_view cut(std::string_view& bytes, uint64_t size) {
  if (size > bytes.size()) fail_short();
  const std::string_view front = bytes.substr(0, size_t(size));
  bytes.remove_prefix(size_t(size));
  return front;
}

// `width` bits from bit `at` on, the lowest first.
uint64_t bits(std::string_view bytes, uint64_t at, int width) {
  if (width == 0) return 0;
  const uint64_t byte = at / 8, shift = at % 8;
  if (at + uint64_t(width) > 8 * uint64_t(bytes.size())) fail_short();
  uint64_t low = 0;
  std::memcpy(&low, bytes.data() + byte, std::min<size_t>(8, bytes.size() - size_t(byte)));
  low >>= shift;
  if (shift + uint64_t(width) > 64) low |= uint64_t(uint8_t(bytes[size_t(byte) + 8])) << (64 - shift);
  return width == 64 ? low : low & ((uint64_t{1} << width) - 1);
}

uint64_t take_varint(std::string_view& bytes) {
  if (const auto value = read_varint([&] { return cut(bytes, 1)[0]; })) return *value;
  throw Error("broken page: a number that does not end");
}

uint64_t from_zigzag(uint64_t value) { return (value >> 1) ^ (~(value & 1) + 1); }

class PlainValues final : public ParquetValues {
 public:
  PlainValues(std::string_view bytes, size_t width) : bytes_(bytes), width_(width) {}
  std::string_view next() override { return cut(bytes_, width_ > 0 ? width_ : little_endian(cut(bytes_, 4))); }

 private:
  std::string_view bytes_;
  size_t width_;
};

class BitValues final : public ParquetValues {
 public:
  explicit BitValues(std::string_view bytes) : bytes_(bytes) {}
  std::string_view next() override { return std::string_view("\0\1", 2).substr(bits(bytes_, at_++, 1), 1); }

 private:
  std::string_view bytes_;
  uint64_t at_ = 0;
};

// Booleans, whose size comes first.
class RunValues final : public ParquetValues {
 public:
  explicit RunValues(std::string_view bytes) : runs_(cut(bytes, little_endian(cut(bytes, 4))), 1) {}
  std::string_view next() override { return std::string_view("\0\1", 2).substr(runs_.next() & 1, 1); }

 private:
  RunReader runs_;
};

class DictionaryValues final : public ParquetValues {
 public:
  DictionaryValues(std::string_view bytes, const ParquetDictionary& dictionary)
      : dictionary_(dictionary), indices_(open(bytes)) {}
  std::string_view next() override { return dictionary_.value(indices_.next()); }

 private:
  static RunReader open(std::string_view bytes) {
    if (bytes.empty()) return {bytes, 0};  // of nulls alone
    const int width = uint8_t(cut(bytes, 1)[0]);
    return {bytes, width};
  }

  const ParquetDictionary& dictionary_;
  RunReader indices_;
};

class DeltaValues final : public ParquetValues {
 public:
  DeltaValues(std::string_view bytes, size_t width) : numbers_(bytes), width_(width) {}
  std::string_view next() override {
    value_ = numbers_.next();
    return {reinterpret_cast<const char*>(&value_), width_};
  }

 private:
  DeltaReader numbers_;
  size_t width_;
  int64_t value_ = 0;
};

class DeltaLengthValues final : public ParquetValues {
 public:
  explicit DeltaLengthValues(std::string_view bytes) : lengths_(bytes), bytes_(lengths_.rest()) {}
  std::string_view next() override { return cut(bytes_, uint64_t(lengths_.next())); }  // a negative one is too long

 private:
  DeltaReader lengths_;
  std::string_view bytes_;
};

// Each value begins as the one before it did.
class DeltaBytesValues final : public ParquetValues {
 public:
  explicit DeltaBytesValues(std::string_view bytes) : prefixes_(bytes), suffixes_(prefixes_.rest()) {}
  std::string_view next() override {
    const int64_t same = prefixes_.next();
    if (same < 0 || uint64_t(same) > value_.size()) throw Error("broken page: a value that begins as none did");
    value_.resize(size_t(same));
    value_ += suffixes_.next();
    return value_;
  }

 private:
  DeltaReader prefixes_;
  DeltaLengthValues suffixes_;
  std::string value_;
};

// All first bytes, then all second ones.
class SplitValues final : public ParquetValues {
 public:
  SplitValues(std::string_view bytes, size_t width)
      : bytes_(bytes), count_(bytes.size() / width), value_(width, '\0') {}
  std::string_view next() override {
    if (at_ >= count_) fail_short();
    for (size_t i = 0; i < value_.size(); ++i) value_[i] = bytes_[i * count_ + at_];
    ++at_;
    return value_;
  }

 private:
  std::string_view bytes_;
  size_t count_, at_ = 0;
  std::string value_;
};

}  // namespace

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  if (!bytes.empty()) std::memcpy(&value, bytes.data(), std::min<size_t>(bytes.size(), 8));
  return value;
}

RunReader::RunReader(std::string_view bytes, int width) : bytes_(bytes), width_(width) {
  if (width > 32) throw Error(fmt::format("broken page: numbers of {} bits", width));
}

uint32_t RunReader::next() {
  while (left_ == 0) begin_run();
  --left_;
  if (!packed_) return value_;
  const auto value = uint32_t(bits(pack_, bit_, width_));
  bit_ += uint64_t(width_);
  return value;
}

void RunReader::begin_run() {
  const uint64_t head = take_varint(bytes_);
  packed_ = (head & 1) != 0;
  if (!packed_) {
    left_ = head >> 1;
    value_ = uint32_t(little_endian(cut(bytes_, uint64_t(width_ + 7) / 8)));
    return;
  }
  const uint64_t groups = std::min(head >> 1, uint64_t{1} << 40);
  left_ = 8 * groups;
  bit_ = 0;
  pack_ = cut(bytes_, std::min(groups * uint64_t(width_), uint64_t(bytes_.size())));  // the last may be cut
}

DeltaReader::DeltaReader(std::string_view bytes) : bytes_(bytes) {
  const uint64_t block = varint();
  parts_ = varint();
  left_ = varint();
  value_ = from_zigzag(varint());
  constexpr uint64_t kMostBlock = 1 << 20;
  if (parts_ == 0 || block == 0 || block > kMostBlock || block % parts_ != 0 || block / parts_ % 8 != 0)
    throw Error(fmt::format("broken page: blocks of {} numbers in {} parts", block, parts_));
  per_part_ = block / parts_;
  next_width_ = size_t(parts_);
}

uint64_t DeltaReader::varint() { return take_varint(bytes_); }

int64_t DeltaReader::next() {
  if (left_ == 0) fail_short();
  --left_;
  if (std::exchange(first_, false)) return int64_t(value_);
  if (left_in_part_ == 0) begin_part();
  --left_in_part_;
  value_ += min_delta_ + bits(part_, bit_, width_);
  bit_ += uint64_t(width_);
  return int64_t(value_);
}

void DeltaReader::begin_part() {
  if (next_width_ == parts_) {
    min_delta_ = from_zigzag(varint());
    widths_ = cut(bytes_, parts_);
    next_width_ = 0;
  }
  width_ = uint8_t(widths_[next_width_++]);
  if (width_ > 64) throw Error(fmt::format("broken page: numbers of {} bits", width_));
  part_ = cut(bytes_, std::min(per_part_ * uint64_t(width_) / 8, uint64_t(bytes_.size())));  // the last may be cut
  left_in_part_ = per_part_;
  bit_ = 0;
}

std::string_view DeltaReader::rest() const {
  DeltaReader all = *this;
  uint64_t left = left_ - std::min<uint64_t>(left_, first_ ? 1 : 0);
  left -= std::min(left, left_in_part_);
  while (left > 0) {
    all.begin_part();
    left -= std::min(left, all.left_in_part_);
  }
  return all.bytes_;
}

ParquetDictionary::ParquetDictionary(std::string bytes, int64_t count, const ParquetLeaf& leaf)
    : bytes_(std::move(bytes)), width_(size_t(leaf.width)), count_(size_t(count)) {
  if (leaf.type == ParquetType::kBoolean || count < 0 || (width_ > 0 && count_ > bytes_.size() / width_) ||
      count_ > bytes_.size() || bytes_.size() > UINT32_MAX)
    throw Error("broken dictionary");
  if (width_ > 0) return;
  std::string_view rest = bytes_;
  for (size_t i = 0; i < count_; ++i) {
    cut(rest, little_endian(cut(rest, 4)));
    ends_.push_back(uint32_t(bytes_.size() - rest.size()));
  }
}

std::string_view ParquetDictionary::value(uint32_t index) const {
  if (index >= count_) throw Error(fmt::format("broken page: value {} of a dictionary of {}", index, count_));
  const std::string_view all = bytes_;
  if (width_ > 0) return all.substr(index * width_, width_);
  const size_t begin = (index > 0 ? ends_[index - 1] : 0) + 4;
  return all.substr(begin, ends_[index] - begin);
}

std::unique_ptr<ParquetValues> make_parquet_values(int64_t encoding, std::string_view bytes, const ParquetLeaf& leaf,
                                                   const ParquetDictionary* dictionary) {
  enum { kPlain, kPlainDictionary = 2, kRuns, kDelta = 5, kDeltaLength, kDeltaBytes, kDictionary, kSplit };
  const auto width = size_t(leaf.width);
  const bool boolean = leaf.type == ParquetType::kBoolean, text = leaf.type == ParquetType::kBytes;
  const bool integer = leaf.type == ParquetType::kInt32 || leaf.type == ParquetType::kInt64;
  if (encoding == kPlain && boolean) return std::make_unique<BitValues>(bytes);
  if (encoding == kPlain) return std::make_unique<PlainValues>(bytes, width);
  if (encoding == kPlainDictionary || encoding == kDictionary) {
    if (dictionary == nullptr) throw Error("broken page: its dictionary is missing");
    return std::make_unique<DictionaryValues>(bytes, *dictionary);
  }
  if (encoding == kRuns && boolean) return std::make_unique<RunValues>(bytes);
  if (encoding == kDelta && integer) return std::make_unique<DeltaValues>(bytes, width);
  if (encoding == kDeltaLength && text) return std::make_unique<DeltaLengthValues>(bytes);
  if (encoding == kDeltaBytes && (text || leaf.type == ParquetType::kFixed))
    return std::make_unique<DeltaBytesValues>(bytes);
  if (encoding == kSplit && width > 0) return std::make_unique<SplitValues>(bytes, width);
  throw Error(fmt::format("a page in encoding {}, which is not read for its type", encoding));
}

}  // namespace weft
