// The fields of a config.json. Each is read, ignored as harmless, or judged at the end.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"

namespace weft {

// Far above any model, far below where products of sizes leave 64 bits.
namespace hf_ranges {
inline constexpr JsonFields::IntRange kSize{.min = 1, .max = int64_t{1} << 31};
inline constexpr JsonFields::IntRange kWidth{.min = 1, .max = int64_t{1} << 24};
inline constexpr JsonFields::IntRange kLayers{.min = 1, .max = 16384};
inline constexpr JsonFields::Range kProbability{.min = 0, .max = 0.999};
}  // namespace hf_ranges

inline constexpr std::string_view kMxfp4Advice =
    "convert them to bf16 first (transformers: Mxfp4Config(dequantize=True), then save_pretrained)";

// Getters as JsonFields has them, that remember what was asked for.
class HfFields {
 public:
  explicit HfFields(JsonFields fields) : fields_(std::move(fields)) {}

  bool has(std::string_view key) { return take(key).has(key); }
  // Absent, which is not the same as null for fields whose default is not null.
  bool absent(std::string_view key) const { return !fields_.json().contains(key); }
  int64_t integer(std::string_view key, JsonFields::IntRange range, std::optional<int64_t> fallback = {}) {
    return take(key).integer(key, range, fallback);
  }
  double number(std::string_view key, JsonFields::Range range, std::optional<double> fallback = {}) {
    return take(key).number(key, range, fallback);
  }
  bool flag(std::string_view key, std::optional<bool> fallback = {}) { return take(key).flag(key, fallback); }
  std::string string(std::string_view key, std::optional<std::string> fallback = {}) {
    return take(key).string(key, std::move(fallback));
  }
  HfFields object(std::string_view key) { return HfFields(take(key).object(key)); }
  // The value as it is; it must be there.
  const nlohmann::json& value(std::string_view key) { return *take(key).find(key); }

  // Marks `key` as read.
  const JsonFields& take(std::string_view key) {
    used_.emplace(key);
    return fields_;
  }
  const JsonFields& fields() const { return fields_; }
  bool was_taken(const std::string& key) const { return used_.count(key) != 0; }

  // Throws ConfigError: `source: "key": VALUE is not supported: why`.
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

 private:
  JsonFields fields_;
  std::set<std::string, std::less<>> used_;
};

// Judges every field that was not taken: fields known to change nothing about training are passed over; fields of which
// only the neutral value is supported, and unknown fields that by their name may change the result, are refused; for
// the rest there is a warning each.
std::vector<std::string> judge_other_fields(const HfFields& fields);

}  // namespace weft
