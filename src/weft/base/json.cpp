#include "weft/base/json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail_at(std::string_view source, std::string_view text, size_t offset, std::string_view what) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const int64_t line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  throw FileError(fmt::format("{}: line {}, column {} (byte {}): {}", source, line, before.size() - line_start + 1,
                              before.size(), what));
}

// What the parser says, without its own numbering and position; its "last read" part can be as long as the file.
std::string reason_of(const Json::exception& e) {
  std::string_view what = e.what();
  for (const char* mark : {"] ", "syntax error "}) {
    const size_t at = what.find(mark);
    if (at != std::string_view::npos) what.remove_prefix(at + (mark[0] == ']' ? 2 : 0));
  }
  std::string reason(what.substr(0, 160));
  reason.resize(std::min(reason.size(), utf8_error(reason)));
  return reason + (what.size() > 160 ? "..." : "");
}

// Builds a value from the parser's events, with the checks that the library's own builder lacks.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, std::string_view source, int max_depth)
      : text_(text), source_(source), max_depth_(max_depth) {}

  Json take() { return std::move(root_); }

  bool null() override { return place(nullptr); }
  bool boolean(bool value) override { return place(value); }
  bool number_integer(int64_t value) override { return place(value); }
  bool number_unsigned(uint64_t value) override { return place(value); }
  bool number_float(double value, const std::string&) override { return place(value); }
  bool string(std::string& value) override { return place(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has none

  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    if (open_.back()->contains(name))
      throw FileError(fmt::format("{}: the key {} appears twice in one object", source_, in_quotes(name)));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    fail_at(source_, text_, position == 0 ? 0 : position - 1, "not valid JSON: " + reason_of(error));
  }

 private:
  bool place(Json value) {
    put(std::move(value));
    return true;
  }
  Json* put(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    return &(parent[key_] = std::move(value));
  }
  bool open(Json empty) {
    if (int(open_.size()) >= max_depth_)
      throw FileError(fmt::format("{}: objects and arrays are nested more than {} deep", source_, max_depth_));
    open_.push_back(put(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_, source_;
  int max_depth_;
  Json root_;
  std::vector<Json*> open_;  // each stays where it is until closed: its parent grows only after that
  std::string key_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source, JsonLimits limits) {
  if (text.size() > limits.max_bytes)
    throw FileError(
        fmt::format("{}: {} bytes of JSON, more than the {} allowed", source, text.size(), limits.max_bytes));
  if (const size_t bad = utf8_error(text); bad != std::string_view::npos) fail_at(source, text, bad, "not UTF-8 text");
  // The library takes a NUL for the end of the text, and would not look at what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    fail_at(source, text, nul, "a NUL byte in JSON text");
  Builder builder(text, source, limits.max_depth);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, JsonLimits limits) {
  const MappedFile file(path);
  return parse_json(file.text(), path.string(), limits);
}

std::string in_quotes(std::string_view text) { return shown(std::string(text.substr(0, 100))); }

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= 84) return text;
  text.resize(80);
  text.resize(std::min(text.size(), utf8_error(text)));
  return text + (value.is_string() ? "...\"" : "...");
}

JsonFields::JsonFields(const Json& value, std::string source, std::string path)
    : object_(value), source_(std::move(source)), path_(std::move(path)) {
  if (value.is_object()) return;
  if (path_.empty()) throw FileError(fmt::format("{}: expected a JSON object, got {}", source_, shown(value)));
  const std::string name = path_.substr(0, path_.size() - 1);
  throw FileError(fmt::format("{}: \"{}\": expected an object, got {}", source_, name, shown(value)));
}

const Json* JsonFields::find(std::string_view key) const {
  const auto at = object_.find(key);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

int64_t JsonFields::integer(std::string_view key, IntRange range, std::optional<int64_t> fallback) const {
  const Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail_missing(key);
  const bool fits =
      value->is_number_integer() && (!value->is_number_unsigned() || value->get<uint64_t>() <= uint64_t(INT64_MAX));
  if (fits && value->get<int64_t>() >= range.min && value->get<int64_t>() <= range.max) return value->get<int64_t>();
  if (range.max == std::numeric_limits<int64_t>::max())
    fail(key, fmt::format("a whole number of at least {}", range.min));
  fail(key, fmt::format("a whole number from {} to {}", range.min, range.max));
}

double JsonFields::number(std::string_view key, Range range, std::optional<double> fallback) const {
  const Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail_missing(key);
  const double got = value->is_number() ? value->get<double>() : std::nan("");
  if (got >= range.min && got <= range.max) return got;
  if (range.max == std::numeric_limits<double>::max()) fail(key, fmt::format("a number of at least {}", range.min));
  fail(key, fmt::format("a number from {} to {}", range.min, range.max));
}

bool JsonFields::flag(std::string_view key, std::optional<bool> fallback) const {
  const Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail_missing(key);
  if (!value->is_boolean()) fail(key, "true or false");
  return value->get<bool>();
}

std::string JsonFields::string(std::string_view key, std::optional<std::string> fallback) const {
  const Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) fail_missing(key);
  if (!value->is_string()) fail(key, "a string");
  return value->get<std::string>();
}

JsonFields JsonFields::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) fail_missing(key);
  return JsonFields(*value, source_, path_ + std::string(key) + ".");
}

std::string JsonFields::where(std::string_view key) const {
  return fmt::format("{}: {}", source_, in_quotes(path_ + std::string(key)));
}

std::optional<JsonDifference> first_difference(const nlohmann::json& a, const nlohmann::json& b) {
  if (a == b) return {};
  const nlohmann::json all_a = a.flatten(), all_b = b.flatten();
  const auto has = [](const nlohmann::json& all, const std::string& key) {
    return all.contains(key) ? shown(all.at(key)) : std::string("nothing");
  };
  for (const auto* all : {&all_b, &all_a})
    for (const auto& one : all->items()) {
      const std::string& key = one.key();
      const bool same = all_a.contains(key) && all_b.contains(key) && all_a.at(key) == all_b.at(key);
      if (!same) return JsonDifference{key.substr(!key.empty()), has(all_a, key), has(all_b, key)};
    }
  return JsonDifference{"", shown(a), shown(b)};  // flat, an empty list is an empty object and null
}

const nlohmann::json& JsonFields::list(std::string_view key, std::string_view what) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) fail_missing(key);
  if (!value->is_array()) fail(key, what);
  return *value;
}

void JsonFields::fail(std::string_view key, std::string_view expected) const {
  const auto found = object_.find(std::string(key));
  throw FileError(
      fmt::format("{}: expected {}, got {}", where(key), expected, found == object_.end() ? "nothing" : shown(*found)));
}

void JsonFields::fail_missing(std::string_view key) const {
  throw FileError(fmt::format("{}: is missing", where(key)));
}

}  // namespace weft
