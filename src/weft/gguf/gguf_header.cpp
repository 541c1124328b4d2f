#include "weft/gguf/gguf_header.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr int64_t kUsualAlignment = 32, kLargestAlignment = 1 << 20;
constexpr uint32_t kMostDims = 4;
constexpr size_t kLongestName = 65535;

int64_t bytes_of(GgufKind kind) {
  switch (kind) {
    case GgufKind::u8:
    case GgufKind::i8:
    case GgufKind::boolean:
      return 1;
    case GgufKind::u16:
    case GgufKind::i16:
      return 2;
    case GgufKind::u32:
    case GgufKind::i32:
    case GgufKind::f32:
      return 4;
    case GgufKind::u64:
    case GgufKind::i64:
    case GgufKind::f64:
      return 8;
    default:
      return 0;  // no number
  }
}

// The number that `at` points to, of a kind that is one.
GgufValue number_at(GgufKind kind, const std::byte* at) {
  const auto as = [&](auto number) {
    std::memcpy(&number, at, sizeof number);
    return number;
  };
  switch (kind) {
    case GgufKind::u8:
      return uint64_t(as(uint8_t()));
    case GgufKind::i8:
      return int64_t(as(int8_t()));
    case GgufKind::u16:
      return uint64_t(as(uint16_t()));
    case GgufKind::i16:
      return int64_t(as(int16_t()));
    case GgufKind::u32:
      return uint64_t(as(uint32_t()));
    case GgufKind::i32:
      return int64_t(as(int32_t()));
    case GgufKind::f32:
      return double(as(float()));
    case GgufKind::boolean:
      return as(uint8_t()) != 0;
    case GgufKind::u64:
      return as(uint64_t());
    case GgufKind::i64:
      return as(int64_t());
    case GgufKind::f64:
      return as(double());
    default:
      WEFT_CHECK(false, "kind {}", uint32_t(kind));
  }
}

class Parser {
 public:
  Parser(std::string_view file, std::string_view source) : file_(file), source_(source) {}

  GgufHeader parse() {
    read_magic();
    const uint64_t tensors = number<uint64_t>("the number of tensors"), keys = number<uint64_t>("the number of keys");
    // Nothing is reserved by these counts: each tensor and key takes bytes of the file.
    for (uint64_t i = 0; i < keys; ++i) read_key(i);
    for (uint64_t i = 0; i < tensors; ++i) read_tensor(i);
    place_tensors();
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw FileError(fmt::format("{}: {}", source_, what)); }

  std::string_view take(uint64_t bytes, std::string_view what) {
    if (bytes > file_.size() - at_)
      fail(fmt::format("{} takes {} bytes at byte {}, but the file has {}: it is cut short or broken, fetch it again",
                       what, bytes, at_, file_.size()));
    const std::string_view taken = file_.substr(at_, bytes);
    at_ += bytes;
    return taken;
  }
  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  std::string_view text(std::string_view what) { return take(number<uint64_t>(what), what); }

  std::string name(std::string_view what) {
    const std::string_view name = text(what);
    if (name.empty() || name.size() > kLongestName || utf8_error(name) != std::string_view::npos)
      fail(fmt::format("{} is {} bytes long or no UTF-8 text: {}", what, name.size(), in_quotes(name)));
    return std::string(name);
  }

  void read_magic() {
    if (!file_.starts_with("GGUF")) fail("does not begin with \"GGUF\": it is no GGUF file");
    at_ = 4;
    const auto version = number<uint32_t>("the version");
    if ((version & 0xffff) == 0) fail("is of a big-endian machine: convert the model again for a little-endian one");
    if (version < 2 || version > 3)
      fail(fmt::format("is of version {}; weft reads 2 and 3: convert the model again", version));
  }

  void read_key(uint64_t index) {
    std::string key = name(fmt::format("the name of key {}", index));
    GgufValue value = read_value(key, number<uint32_t>(key));
    if (header_.metadata.count(key)) fail(fmt::format("{} is there twice: convert the model again", in_quotes(key)));
    header_.metadata.emplace(std::move(key), std::move(value));
  }

  GgufValue read_value(const std::string& key, uint32_t id) {
    const auto kind = GgufKind(id);
    if (id > uint32_t(GgufKind::f64))
      fail(fmt::format("{} is of type {}, which there is not: the file is broken, fetch it again", in_quotes(key), id));
    if (kind == GgufKind::text) return text(key);
    if (kind == GgufKind::array) return read_array(key);
    const std::string_view bytes = take(uint64_t(bytes_of(kind)), key);
    return number_at(kind, std::as_bytes(std::span(bytes)).data());
  }

  GgufValue read_array(const std::string& key) {
    const auto id = number<uint32_t>(key);
    const auto count = number<uint64_t>(key);
    const auto kind = GgufKind(id);
    const bool is_text = kind == GgufKind::text;
    if (id > uint32_t(GgufKind::f64) || kind == GgufKind::array)
      fail(fmt::format("{} is a list of type {}; weft reads lists of numbers and of texts: convert the model again",
                       in_quotes(key), id));
    const uint64_t least = is_text ? 8 : uint64_t(bytes_of(kind));
    if (count > (file_.size() - at_) / least)
      fail(fmt::format("{} has {} values, more than the file has bytes for: it is cut short or broken, fetch it again",
                       in_quotes(key), count));
    GgufArray array{.kind = kind, .count = int64_t(count)};
    if (!is_text) {
      array.numbers = std::as_bytes(std::span(take(count * least, key)));
      return array;
    }
    for (uint64_t i = 0; i < count; ++i) array.texts.push_back(text(key));
    return array;
  }

  void read_tensor(uint64_t index) {
    GgufTensor t;
    t.name = name(fmt::format("the name of tensor {}", index));
    const auto dims = number<uint32_t>(t.name);
    if (dims > kMostDims)
      fail(fmt::format("tensor {} has {} dims; there may be {}: convert the model again", in_quotes(t.name), dims,
                       kMostDims));
    int64_t elements = 1;
    for (uint32_t i = 0; i < dims; ++i) {
      const auto size = number<uint64_t>(t.name);
      if (size == 0 || size > uint64_t(INT64_MAX / elements) || elements * int64_t(size) > int64_t{1} << 56)
        fail(fmt::format("tensor {} has a size of {}, which no tensor has: the file is broken, fetch it again",
                         in_quotes(t.name), size));
      elements *= int64_t(size);
      t.shape.insert(t.shape.begin(), int64_t(size));
    }
    t.type = number<uint32_t>(t.name);
    const auto offset = number<uint64_t>(t.name);
    if (offset > file_.size())
      fail(fmt::format("tensor {} begins behind the end of the file: it is cut short or broken, fetch it again",
                       in_quotes(t.name)));
    t.begin = int64_t(offset);
    if (const GgufTypeInfo* type = find_gguf_type(t.type)) {
      if (t.cols() % type->block != 0)
        fail(fmt::format(
            "tensor {} has rows of {} numbers, which are no whole blocks of {} ({}): convert the model again",
            in_quotes(t.name), t.cols(), type->name, type->block));
      t.end = t.begin + elements / type->block * type->bytes;
    }
    header_.tensors.push_back(std::move(t));
  }

  // Offsets are from the first multiple of the alignment behind the header.
  void place_tensors() {
    const GgufFields fields(header_.metadata, std::string(source_));
    const int64_t alignment = fields.integer("general.alignment", 1, kLargestAlignment, kUsualAlignment);
    if ((alignment & (alignment - 1)) != 0) fields.fail("general.alignment", "a power of two");
    const int64_t data = (int64_t(at_) + alignment - 1) / alignment * alignment;
    std::vector<const GgufTensor*> sorted;
    for (GgufTensor& t : header_.tensors) {
      if (t.begin % alignment != 0)
        fail(fmt::format("tensor {} begins at {}, which is no multiple of the alignment, {}: convert the model again",
                         in_quotes(t.name), t.begin, alignment));
      t.begin += data;
      if (t.end >= 0) t.end += data;
      if (t.end > int64_t(file_.size()))
        fail(fmt::format("tensor {} ends at byte {}, but the file has {}: it is cut short or broken, fetch it again",
                         in_quotes(t.name), t.end, file_.size()));
      sorted.push_back(&t);
    }
    const auto complain_of_equal = [&](const GgufTensor& t) {
      fail(fmt::format("tensor {} is there twice: convert the model again", in_quotes(t.name)));
    };
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
    for (size_t i = 1; i < sorted.size(); ++i)
      if (sorted[i]->name == sorted[i - 1]->name) complain_of_equal(*sorted[i]);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
    for (size_t i = 1; i < sorted.size(); ++i)
      if (sorted[i]->begin < std::max(sorted[i - 1]->end, sorted[i - 1]->begin + 1))
        fail(fmt::format("tensors {} and {} overlap: the file is broken, fetch it again",
                         in_quotes(sorted[i - 1]->name), in_quotes(sorted[i]->name)));
  }

  std::string_view file_, source_;
  size_t at_ = 0;
  GgufHeader header_;
};

// A whole number, if it is one that fits.
std::optional<int64_t> integer_of(const GgufValue& value) {
  if (const auto* u = std::get_if<uint64_t>(&value); u != nullptr && *u <= uint64_t(INT64_MAX)) return int64_t(*u);
  if (const auto* i = std::get_if<int64_t>(&value)) return *i;
  return {};
}
std::optional<double> number_of(const GgufValue& value) {
  if (const auto* d = std::get_if<double>(&value)) return *d;
  const auto i = integer_of(value);
  return i ? std::optional(double(*i)) : std::nullopt;
}

struct Shown {
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(std::string_view text) const { return in_quotes(text); }
  std::string operator()(const GgufArray& a) const { return fmt::format("a list of {}", a.count); }
  template <class T>
  std::string operator()(T number) const {
    return fmt::format("{}", number);
  }
};

// The numbers of a list, each as `convert` takes it; nothing where one is none.
template <class T>
std::optional<std::vector<T>> list_of(const GgufValue& value, std::optional<T> (*convert)(const GgufValue&)) {
  const auto* array = std::get_if<GgufArray>(&value);
  if (array == nullptr || array->kind == GgufKind::text) return {};
  std::vector<T> all;
  for (int64_t i = 0; i < array->count; ++i) {
    const auto one = convert(number_at(array->kind, array->numbers.data() + i * bytes_of(array->kind)));
    if (!one) return {};
    all.push_back(*one);
  }
  return all;
}

}  // namespace

int64_t GgufTensor::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

const GgufTensor* GgufHeader::find(std::string_view name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const GgufTensor& t) { return t.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

GgufHeader parse_gguf_header(std::string_view file, std::string_view source) { return Parser(file, source).parse(); }

const GgufValue& GgufFields::value(std::string_view key) const {
  const auto at = metadata_.find(key);
  if (at == metadata_.end()) throw FileError(fmt::format("{}: is missing", where(key)));
  return at->second;
}

std::vector<std::string> GgufFields::keys(std::string_view beginning) const {
  std::vector<std::string> all;
  for (auto at = metadata_.lower_bound(beginning); at != metadata_.end() && at->first.starts_with(beginning); ++at)
    all.push_back(at->first);
  return all;
}

int64_t GgufFields::integer(std::string_view key, int64_t min, int64_t max) const {
  const auto number = integer_of(value(key));
  if (!number || *number < min || *number > max) fail(key, fmt::format("a whole number from {} to {}", min, max));
  return *number;
}
int64_t GgufFields::integer(std::string_view key, int64_t min, int64_t max, int64_t fallback) const {
  return has(key) ? integer(key, min, max) : fallback;
}
int64_t GgufFields::token_id(std::string_view key) const {
  const int64_t id = integer(key, -1, UINT32_MAX, -1);
  return id == UINT32_MAX ? -1 : id;
}
double GgufFields::number(std::string_view key) const {
  const auto number = number_of(value(key));
  if (!number) fail(key, "a number");
  return *number;
}
double GgufFields::number(std::string_view key, double fallback) const { return has(key) ? number(key) : fallback; }
bool GgufFields::flag(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const auto* flag = std::get_if<bool>(&value(key));
  if (flag == nullptr) fail(key, "true or false");
  return *flag;
}
std::string GgufFields::text(std::string_view key) const {
  const auto* text = std::get_if<std::string_view>(&value(key));
  if (text == nullptr || utf8_error(*text) != std::string_view::npos) fail(key, "UTF-8 text");
  return std::string(*text);
}
std::string GgufFields::text(std::string_view key, std::string_view fallback) const {
  return has(key) ? text(key) : std::string(fallback);
}
const std::vector<std::string_view>& GgufFields::texts(std::string_view key) const {
  const auto* array = std::get_if<GgufArray>(&value(key));
  if (array == nullptr || array->kind != GgufKind::text) fail(key, "a list of texts");
  return array->texts;
}
std::vector<double> GgufFields::numbers(std::string_view key) const {
  auto list = list_of<double>(value(key), number_of);
  if (!list) fail(key, "a list of numbers");
  return std::move(*list);
}
std::vector<int64_t> GgufFields::integers(std::string_view key) const {
  auto list = list_of<int64_t>(value(key), integer_of);
  if (!list) fail(key, "a list of whole numbers");
  return std::move(*list);
}

std::string GgufFields::where(std::string_view key) const { return fmt::format("{}: {}", source_, in_quotes(key)); }
void GgufFields::fail(std::string_view key, std::string_view expected) const {
  throw FileError(fmt::format("{}: expected {}, got {}", where(key), expected, std::visit(Shown(), value(key))));
}

}  // namespace weft
