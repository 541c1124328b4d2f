// JSON from files that weft did not write: bounded, strict, and with errors that name the file, the place and the key.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

struct JsonLimits {
  size_t max_bytes = 64 << 20;
  int max_depth = 64;
};

// The value written in `text`. Throws FileError, beginning with `source`, where the text is longer or deeper than the
// limits, is not UTF-8, holds a NUL, names a key twice in one object, or is not exactly one JSON value.
nlohmann::json parse_json(std::string_view text, std::string_view source, JsonLimits limits = {});
// The same of a file's content; its path is the source.
nlohmann::json read_json_file(const std::filesystem::path& path, JsonLimits limits = {});

// `text` for a message: in quotes, control characters escaped, cut after about 80 bytes.
std::string in_quotes(std::string_view text);
// A value for a message: as JSON, cut in the same way.
std::string shown(const nlohmann::json& value);

// The first field in which two values differ, by its path ("parameters/length.min_words"), with what each has there as
// `shown` does, or "nothing"; with no path where none says it, as of an empty list and null. None: they are equal.
struct JsonDifference {
  std::string path, a, b;
};
std::optional<JsonDifference> first_difference(const nlohmann::json& a, const nlohmann::json& b);

// Reads one JSON object field by field. Each getter checks the type and the range and throws FileError such as
//   config.json: "hidden_size": expected a whole number of at least 1, got "64"
// A null counts as absent. The object is borrowed, and must outlive this.
class JsonFields {
 public:
  // `path` comes before keys in messages: "rope_scaling." for an object within. Throws FileError if `value` is no
  // object.
  JsonFields(const nlohmann::json& value, std::string source, std::string path = "");

  const nlohmann::json& json() const { return object_; }
  // The value of `key`, or nullptr where it is absent or null.
  const nlohmann::json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  struct IntRange {
    int64_t min = 1;
    int64_t max = std::numeric_limits<int64_t>::max();
  };
  struct Range {
    double min = 0;
    double max = std::numeric_limits<double>::max();
  };
  // Without a fallback the field is required.
  int64_t integer(std::string_view key, IntRange range, std::optional<int64_t> fallback = {}) const;
  double number(std::string_view key, Range range, std::optional<double> fallback = {}) const;
  bool flag(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string string(std::string_view key, std::optional<std::string> fallback = {}) const;
  // An object within; required.
  JsonFields object(std::string_view key) const;
  // A list within; required. `what` it is of, for the message: "a list of stages".
  const nlohmann::json& list(std::string_view key, std::string_view what) const;

  // `source: "path.key"`, with which a message about this field begins.
  std::string where(std::string_view key) const;
  // Throws FileError: the field is not `expected`, or not there.
  [[noreturn]] void fail(std::string_view key, std::string_view expected) const;

 private:
  [[noreturn]] void fail_missing(std::string_view key) const;

  const nlohmann::json& object_;
  std::string source_, path_;
};

}  // namespace weft
