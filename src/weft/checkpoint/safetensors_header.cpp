#include "weft/checkpoint/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian, and are mapped as they are");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxDims = 64;
constexpr size_t kMaxMetadata = 100'000;  // entries: each takes ten times its bytes in the file
constexpr int kMaxDepth = 128;            // within fields that are ignored

[[noreturn]] void fail(std::string_view source, std::string_view kind, const std::string& what) {
  throw FileError(fmt::format("{}: {}: {}; the file is damaged, incomplete or hostile: fetch or write it again", source,
                              kind, what));
}

// One tensor as its header states it: unsigned, nothing checked yet.
struct Claim {
  std::string name;
  std::optional<FileDType> dtype;
  std::vector<uint64_t> shape;
  std::array<uint64_t, 2> offsets{};
  int num_offsets = 0;
  bool has_shape = false, has_offsets = false;
};

// Takes the header apart while it is parsed: no document of all of it is ever built.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string_view source) : source_(source) {}

  std::vector<Claim> claims;
  std::map<std::string, std::string> metadata;

  bool null() override { return scalar(Kind::null, 0, nullptr); }
  bool boolean(bool) override { return scalar(Kind::other, 0, nullptr); }
  bool number_integer(int64_t) override { return scalar(Kind::other, 0, nullptr); }  // negative
  bool number_unsigned(uint64_t value) override { return scalar(Kind::number, value, nullptr); }
  bool number_float(double, const std::string&) override { return scalar(Kind::other, 0, nullptr); }
  bool string(std::string& value) override { return scalar(Kind::string, 0, &value); }
  bool binary(nlohmann::json::binary_t&) override { return false; }

  bool key(std::string& name) override {
    if (at_ == At::top) {
      name_ = name;
      if (name == "__metadata__" && std::exchange(has_metadata_, true)) refuse("__metadata__ appears twice");
    } else if (at_ == At::tensor || at_ == At::metadata) {
      field_ = name;
      if (at_ == At::metadata && metadata.count(name) != 0) refuse(in_quotes(name) + " appears twice in __metadata__");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (at_ == At::before) {
      at_ = At::top;
    } else if (at_ == At::top) {
      at_ = name_ == "__metadata__" ? At::metadata : At::tensor;
      if (at_ == At::tensor) claims.emplace_back().name = name_;
    } else {
      ignore_container();
    }
    return true;
  }
  bool end_object() override {
    if (at_ == At::ignored) return leave_ignored();
    if (at_ == At::tensor) check_complete(claims.back());
    at_ = at_ == At::top ? At::after : At::top;
    return true;
  }

  bool start_array(size_t) override {
    if (at_ == At::tensor && field_ == "shape") {
      if (std::exchange(claims.back().has_shape, true)) refuse_field("is given twice");
      at_ = At::shape;
    } else if (at_ == At::tensor && field_ == "data_offsets") {
      if (std::exchange(claims.back().has_offsets, true)) refuse_field("is given twice");
      at_ = At::offsets;
    } else {
      ignore_container();
    }
    return true;
  }
  bool end_array() override {
    if (at_ == At::ignored) return leave_ignored();
    at_ = At::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    refuse(fmt::format("the header is not valid JSON at its byte {}", position));
  }

 private:
  enum class At : uint8_t { before, top, metadata, tensor, shape, offsets, ignored, after };
  enum class Kind : uint8_t { null, number, string, other };

  [[noreturn]] void refuse(const std::string& what) const { fail(source_, "InvalidHeaderDeserialization", what); }
  [[noreturn]] void refuse_field(std::string_view what) const {
    refuse(fmt::format("tensor {}: {} {}", in_quotes(name_), in_quotes(field_), what));
  }

  bool scalar(Kind kind, uint64_t number, std::string* text) {
    switch (at_) {
      case At::metadata:
        if (kind != Kind::string) refuse(fmt::format("{} in __metadata__ is not a string", in_quotes(field_)));
        if (metadata.size() == kMaxMetadata) refuse(fmt::format("more than {} entries in __metadata__", kMaxMetadata));
        metadata[field_] = std::move(*text);
        return true;
      case At::tensor:
        return tensor_scalar(kind, text);
      case At::shape:
        if (kind != Kind::number) refuse_field("holds something other than whole numbers of at least 0");
        if (claims.back().shape.size() == kMaxDims) refuse_field(fmt::format("has more than {} dimensions", kMaxDims));
        claims.back().shape.push_back(number);
        return true;
      case At::offsets:
        if (kind != Kind::number) refuse_field("holds something other than whole numbers of at least 0");
        if (claims.back().num_offsets == 2) refuse_field("holds more than two numbers");
        claims.back().offsets[size_t(claims.back().num_offsets++)] = number;
        return true;
      case At::ignored:
        return true;
      case At::top:
        if (name_ == "__metadata__" && kind == Kind::null) return true;
        refuse(fmt::format("{} is not an object", in_quotes(name_)));
      default:
        refuse("the header is not a JSON object");
    }
  }

  bool tensor_scalar(Kind kind, const std::string* text) {
    if (field_ == "shape" || field_ == "data_offsets") refuse_field("is not an array");
    if (field_ != "dtype") return true;  // fields of some later version
    if (kind != Kind::string) refuse_field("is not a string");
    const auto known = std::find_if(kFileDTypes.begin(), kFileDTypes.end(),
                                    [&](const FileDTypeInfo& info) { return info.name == *text; });
    if (known == kFileDTypes.end()) refuse_field("is " + in_quotes(*text) + ", which is no type of the format");
    if (claims.back().dtype) refuse_field("is given twice");
    claims.back().dtype = FileDType(known - kFileDTypes.begin());
    return true;
  }

  // A container where none belongs is an error; within a field that is not known it is skipped.
  void ignore_container() {
    if (at_ == At::ignored) {
      if (++ignored_depth_ > kMaxDepth) refuse("values are nested too deep");
      return;
    }
    if (at_ == At::before) refuse("the header is not a JSON object");
    if (at_ == At::top) refuse(fmt::format("{} is not an object", in_quotes(name_)));
    if (at_ == At::metadata) refuse(fmt::format("{} in __metadata__ is not a string", in_quotes(field_)));
    if (at_ != At::tensor || field_ == "dtype" || field_ == "shape" || field_ == "data_offsets")
      refuse_field("is not of the form that the format asks for");
    at_ = At::ignored;
    ignored_depth_ = 1;
  }
  bool leave_ignored() {
    if (--ignored_depth_ == 0) at_ = At::tensor;
    return true;
  }

  void check_complete(const Claim& claim) const {
    const auto need = [&](bool there, const char* field) {
      if (!there) refuse(fmt::format("tensor {} has no \"{}\"", in_quotes(claim.name), field));
    };
    need(claim.dtype.has_value(), "dtype");
    need(claim.has_shape, "shape");
    need(claim.has_offsets, "data_offsets");
    if (claim.num_offsets != 2)
      refuse(fmt::format("tensor {}: data_offsets are not two numbers", in_quotes(claim.name)));
  }

  std::string_view source_;
  At at_ = At::before;
  bool has_metadata_ = false;
  int ignored_depth_ = 0;
  std::string name_, field_;  // keys of the object being read: at the top, and in it
};

// The bytes that shape and dtype take, checked as the reference implementation does, which counts elements first.
uint64_t bytes_of(const Claim& claim, std::string_view source) {
  int64_t bits = 1;
  bool overflow = false;
  for (const uint64_t size : claim.shape)  // the second: a size of its own, where another one is 0
    overflow |= __builtin_mul_overflow(bits, size, &bits) || size > uint64_t(std::numeric_limits<int64_t>::max());
  overflow |= __builtin_mul_overflow(bits, bits_of(*claim.dtype), &bits);
  if (overflow)
    fail(source, "ValidationOverflow", fmt::format("tensor {}: its shape is beyond 63 bits", in_quotes(claim.name)));
  if (bits % 8 != 0)
    fail(source, "MisalignedSlice", fmt::format("tensor {}: it does not fill whole bytes", in_quotes(claim.name)));
  return uint64_t(bits) / 8;
}

SafetensorsEntry entry_of(Claim claim, uint64_t expected_begin, std::string_view source) {
  const auto [begin, end] = claim.offsets;
  if (begin != expected_begin || end < begin)
    fail(source, "InvalidOffset",
         fmt::format("tensor {} has bytes [{}, {}), but those before it end at {}: overlap, gap or reversed range",
                     in_quotes(claim.name), begin, end, expected_begin));
  if (const uint64_t bytes = bytes_of(claim, source); end - begin != bytes)
    fail(source, "TensorInvalidInfo",
         fmt::format("tensor {} has {} bytes of data, but its shape and dtype take {}", in_quotes(claim.name),
                     end - begin, bytes));
  if (end > uint64_t(std::numeric_limits<int64_t>::max()))
    fail(source, "ValidationOverflow", fmt::format("tensor {} ends beyond 63 bits", in_quotes(claim.name)));
  SafetensorsEntry entry{std::move(claim.name), *claim.dtype, {}, int64_t(begin), int64_t(end)};
  entry.shape.assign(claim.shape.begin(), claim.shape.end());
  return entry;
}

// The JSON text at the front of the file.
std::string_view header_text(std::string_view file, std::string_view source) {
  if (file.size() < 8) fail(source, "HeaderTooSmall", fmt::format("{} bytes are too few for a header", file.size()));
  uint64_t size = 0;
  std::memcpy(&size, file.data(), 8);
  if (size > kMaxHeaderBytes)
    fail(source, "HeaderTooLarge", fmt::format("a header of {} bytes, more than {}", size, kMaxHeaderBytes));
  if (size > file.size() - 8)
    fail(source, "InvalidHeaderLength",
         fmt::format("the header should have {} bytes, but only {} follow", size, file.size() - 8));
  const std::string_view text = file.substr(8, size);
  if (const size_t bad = utf8_error(text); bad != std::string_view::npos)
    fail(source, "InvalidHeader", fmt::format("the header is not UTF-8 at its byte {}", bad));
  // The parser would stop at a NUL and skip a byte order mark; both can hide another file.
  if (text.find('\0') != std::string_view::npos || text.substr(0, 3) == "\xef\xbb\xbf")
    fail(source, "InvalidHeaderDeserialization", "the header is not plain JSON: it holds a NUL or a byte order mark");
  return text;
}

}  // namespace

int64_t SafetensorsEntry::num_elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint32_t i, std::string_view wanted) { return tensors[i].name < wanted; });
  return at != by_name_.end() && tensors[*at].name == name ? &tensors[*at] : nullptr;
}

SafetensorsHeader parse_safetensors_header(std::string_view file, std::string_view source) {
  const std::string_view text = header_text(file, source);
  HeaderReader reader(source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);

  SafetensorsHeader header;
  header.metadata = std::move(reader.metadata);
  header.data_begin = 8 + int64_t(text.size());
  std::stable_sort(reader.claims.begin(), reader.claims.end(),
                   [](const Claim& a, const Claim& b) { return a.offsets < b.offsets; });
  header.tensors.reserve(reader.claims.size());
  uint64_t end = 0;
  for (Claim& claim : reader.claims) {
    header.tensors.push_back(entry_of(std::move(claim), end, source));
    end = uint64_t(header.tensors.back().end);
  }
  header.by_name_.resize(header.tensors.size());
  std::iota(header.by_name_.begin(), header.by_name_.end(), 0u);
  const auto name_at = [&](uint32_t i) -> const std::string& { return header.tensors[i].name; };
  std::sort(header.by_name_.begin(), header.by_name_.end(),
            [&](uint32_t a, uint32_t b) { return name_at(a) < name_at(b); });
  const auto twice = std::adjacent_find(header.by_name_.begin(), header.by_name_.end(),
                                        [&](uint32_t a, uint32_t b) { return name_at(a) == name_at(b); });
  if (twice != header.by_name_.end())
    fail(source, "InvalidOffset", fmt::format("two tensors are named {}", in_quotes(name_at(*twice))));
  if (const uint64_t data_bytes = file.size() - uint64_t(header.data_begin); end != data_bytes)
    fail(source, "MetadataIncompleteBuffer",
         fmt::format("the tensors take {} bytes, but {} bytes of data are there", end, data_bytes));
  return header;
}

}  // namespace weft
