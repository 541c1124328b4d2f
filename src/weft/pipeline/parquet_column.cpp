#include "weft/pipeline/parquet_column.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/not_built.h"
#include "weft/pipeline/thrift_reader.h"

namespace weft {
namespace {

constexpr int64_t kMostPage = int64_t{1} << 30, kLikelyHeader = 1 << 10, kMostHeader = 16 << 20;

// CRC-32 as gzip has it.
uint32_t checksum_of(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    return table;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ uint8_t(c)) & 0xff];
  return ~crc;
}

// Hadoop's way to lz4: blocks, each behind its sizes.
void decompress_hadoop_lz4(std::string_view packed, std::span<char> out, const std::string& path) {
  const auto size = [&] {
    if (packed.size() < 4) throw Error("broken lz4 data");
    size_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | uint8_t(packed[size_t(i)]);
    packed.remove_prefix(4);
    return value;
  };
  while (!out.empty()) {
    const size_t made = size(), taken = size();
    if (made == 0 || made > out.size() || taken > packed.size()) throw Error("broken lz4 data");
    decompress_lz4(packed.substr(0, taken), out.first(made), path);
    packed.remove_prefix(taken);
    out = out.subspan(made);
  }
}

}  // namespace

ParquetBytes::ParquetBytes(std::string path, ExpansionLimit limit) : path_(std::move(path)), limit_(limit) {
  fd_ = Descriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0)
    throw FileError(fmt::format("{}: cannot be read: {}", path_, std::strerror(errno)));
  size_ = info.st_size;
}

void ParquetBytes::read(int64_t begin, int64_t size, std::string& to) {
  WEFT_CHECK(begin >= 0 && size >= 0 && size <= size_ - begin, "{} bytes at {} of {}", size, begin, size_);
  to.resize(size_t(size));
  for (int64_t had = 0; had < size;) {
    const ssize_t n = pread(fd_, to.data() + had, size_t(size - had), begin + had);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw FileError(fmt::format("{}: cannot be read: {}", path_, n < 0 ? std::strerror(errno) : "it became shorter"));
    had += n;
  }
}

Codec& ParquetBytes::codec(ParquetCodec kind) {
  const bool gzip = kind == ParquetCodec::kGzip;
  std::unique_ptr<Codec>& codec = gzip ? gzip_ : zstd_;
  if (!codec)
    codec = gzip ? make_gzip_codec(path_) : make_zstd_codec(path_);
  else
    codec->begin_again();
  return *codec;
}

void ParquetBytes::took(int64_t bytes) {
  in_ += bytes;
  if (in_ > size_) throw Error("broken metadata: columns that lie in each other");
}

void ParquetBytes::judge(int64_t made) const {
  if (made > limit_.free_bytes && double(made) > limit_.max_ratio * double(std::max<int64_t>(in_, 1)))
    throw Error(fmt::format("expands more than {:g}-fold: is it a bomb? (read.max_ratio)", limit_.max_ratio));
}

ParquetColumn::ParquetColumn(ParquetBytes& file, const ParquetLeaf& leaf, const ParquetChunk& chunk, int64_t data_end)
    : file_(file), leaf_(leaf), kind_(chunk.codec), at_(chunk.begin), end_(data_end), left_(chunk.entries) {}

std::string_view ParquetColumn::value() {
  here();
  value_taken_ = true;
  return values_->next();
}

void ParquetColumn::next() {
  if (here().definition == leaf_.most_definition && !value_taken_) values_->next();
  loaded_ = value_taken_ = false;
  --left_;
  --on_page_;
}

void ParquetColumn::load() {
  if (left_ == 0) throw Error("a row for which it has no entry");
  while (on_page_ == 0) read_page();
  entry_.repetition = repetitions_ ? int(repetitions_->next()) : 0;
  entry_.definition = definitions_ ? int(definitions_->next()) : 0;
  if (entry_.repetition > leaf_.most_repetition || entry_.definition > leaf_.most_definition)
    throw Error("broken page: levels that the schema has not");
  loaded_ = true;
}

void ParquetColumn::read_page() {
  const PageHeader header = read_header();
  if (header.packed_size < 0 || header.size < 0 || header.packed_size > std::min(end_ - at_, kMostPage) ||
      header.size > kMostPage)
    throw Error(fmt::format("broken page: {} bytes that become {}", header.packed_size, header.size));
  file_.took(header.packed_size);
  file_.read(at_, header.packed_size, packed_);
  at_ += header.packed_size;
  if (header.checksum && *header.checksum != checksum_of(packed_)) throw Error("broken page: its checksum is another");
  enum { kData, kIndex, kDictionary, kDataOfVersion2 };
  if (header.type == kDictionary) {
    if (dictionary_) throw Error("broken chunk: a second dictionary");
    if (header.encoding != 0 && header.encoding != 2)
      throw Error(fmt::format("a dictionary in encoding {}, which is not read", header.encoding));
    unpack(header, "");
    dictionary_.emplace(std::move(page_), header.entries, leaf_);
  } else if (header.type == kData || header.type == kDataOfVersion2) {
    open_page(header, header.type == kDataOfVersion2);
  }
}

// Pages say their size only when their header was read, which may hold the least and greatest of their values.
ParquetColumn::PageHeader ParquetColumn::read_header() {
  for (int64_t look = kLikelyHeader;; look *= 8) {
    const int64_t here = std::min(look, end_ - at_);
    file_.read(at_, here, packed_);
    PageHeader header;
    try {
      size_t size = 0;
      read_fields(packed_, header, size);
      at_ += int64_t(size);
      file_.took(int64_t(size));
      return header;
    } catch (const FileError&) { throw; } catch (const Error&) {
      if (here < look || look > kMostHeader) throw;
    }
  }
}

void ParquetColumn::read_fields(std::string_view bytes, PageHeader& h, size_t& size) const {
  ThriftReader in(bytes);
  in.for_each_field([&](int id) {
    if (id == 1) return h.type = in.integer(), true;
    if (id == 2) return h.size = in.integer(), true;
    if (id == 3) return h.packed_size = in.integer(), true;
    if (id == 4) return h.checksum = uint32_t(in.integer()), true;
    if (id != 5 && id != 7 && id != 8) return false;
    const bool dictionary = id == 7, second = id == 8;
    in.for_each_field([&](int field) {
      if (field == 1) return h.entries = in.integer(), true;
      if (field == (second ? 4 : 2)) return h.encoding = in.integer(), true;
      if (dictionary) return false;
      if (!second && field == 3) return h.definition_encoding = in.integer(), true;
      if (!second && field == 4) return h.repetition_encoding = in.integer(), true;
      if (second && field == 5) return h.definition_bytes = in.integer(), true;
      if (second && field == 6) return h.repetition_bytes = in.integer(), true;
      if (second && field == 7) return h.compressed = in.flag(), true;
      return false;
    });
    return true;
  });
  size = in.offset();
}

// page_ becomes the levels, which are not compressed, and what is behind them in packed_.
void ParquetColumn::unpack(const PageHeader& header, std::string_view levels) {
  const std::string_view packed = std::string_view(packed_).substr(levels.size());
  const int64_t size = header.size - int64_t(levels.size());
  if (kind_ == ParquetCodec::kNone || !header.compressed) {
    if (int64_t(packed.size()) != size) throw Error("broken page: it is not compressed, but has two sizes");
    page_.swap(packed_);
    return;
  }
  file_.unpacked(size);
  page_.assign(levels);
  page_.resize(size_t(header.size));
  if (size > 0) decompress(packed, std::span(page_).subspan(levels.size()));
}

void ParquetColumn::decompress(std::string_view packed, std::span<char> out) {
  if (kind_ == ParquetCodec::kSnappy) return decompress_snappy(packed, out, file_.path());
  if (kind_ == ParquetCodec::kLz4) return decompress_lz4(packed, out, file_.path());
  if (kind_ == ParquetCodec::kLz4Hadoop) {
    try {
      return decompress_hadoop_lz4(packed, out, file_.path());
    } catch (const NotBuilt&) { throw; } catch (const Error&) {
      return decompress_lz4(packed, out, file_.path());  // as some writers understood it
    }
  }
  Codec& codec = file_.codec(kind_);
  while (!out.empty()) {
    const Codec::Step step = codec.step(packed, out);
    packed.remove_prefix(step.taken);
    out = out.subspan(step.made);
    if (step.ended && !out.empty()) codec.begin_again();
    if (step.taken + step.made == 0) throw Error("broken page: fewer bytes than it says");
  }
}

void ParquetColumn::open_page(const PageHeader& h, bool second_version) {
  if (h.entries < 0 || h.entries > left_) throw Error(fmt::format("broken page: {} entries", h.entries));
  const int64_t most = std::min(h.size, int64_t(packed_.size()));
  if (h.repetition_bytes < 0 || h.definition_bytes < 0 || h.repetition_bytes > most ||
      h.definition_bytes > most - h.repetition_bytes)
    throw Error("broken page: levels that are longer than it");
  unpack(h, std::string_view(packed_).substr(0, size_t(h.repetition_bytes + h.definition_bytes)));
  std::string_view rest = page_;
  const auto levels = [&](int most, int64_t size, int64_t encoding) -> std::optional<RunReader> {
    const std::string_view bytes = rest;
    if (second_version) rest.remove_prefix(size_t(size));
    if (most == 0) return {};
    const int width = std::bit_width(unsigned(most));
    if (second_version) return RunReader(bytes.substr(0, size_t(size)), width);
    if (encoding != 3) throw Error(fmt::format("levels in encoding {}, which is not read", encoding));
    if (rest.size() < 4 || little_endian(rest.substr(0, 4)) > rest.size() - 4)
      throw Error("broken page: levels that are longer than it");
    const auto length = size_t(little_endian(rest.substr(0, 4)));
    rest.remove_prefix(4 + length);
    return RunReader(bytes.substr(4, length), width);
  };
  repetitions_ = levels(leaf_.most_repetition, h.repetition_bytes, h.repetition_encoding);
  definitions_ = levels(leaf_.most_definition, h.definition_bytes, h.definition_encoding);
  values_ = make_parquet_values(h.encoding, rest, leaf_, dictionary_ ? &*dictionary_ : nullptr);
  on_page_ = h.entries;
}

}  // namespace weft
