#include "weft/pipeline/parquet_values.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cmath>

#include "weft/base/utf8.h"
#include "weft/pipeline/json_row.h"

namespace weft {
namespace {

__extension__ using Wide = __int128;

int64_t signed_of(const ParquetLeaf& leaf, std::string_view value) {
  const uint64_t bits = little_endian(value);
  return leaf.type == ParquetType::kInt32 ? int64_t(int32_t(uint32_t(bits))) : int64_t(bits);
}

// JSON's numbers are neither infinite nor undefined; those without a fraction stay apart from whole ones.
template <class T>
void append_float(std::string& json, T value) {
  if (!std::isfinite(value)) return void(json += "null");
  const size_t begin = json.size();
  fmt::format_to(std::back_inserter(json), "{}", value);
  if (json.find_first_of(".e", begin) == std::string::npos) json += ".0";
}

float half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = bits >> 15 ? -1.f : 1.f;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(float(fraction), -24) : std::ldexp(float(fraction + 1024), exponent - 25));
}

// Unscaled numbers lie as integers, or with the highest byte first.
void append_decimal(std::string& json, const ParquetLeaf& leaf, std::string_view value) {
  const bool integer = leaf.type == ParquetType::kInt32 || leaf.type == ParquetType::kInt64;
  if (!integer && (value.empty() || value.size() > 16)) return void(json += "null");
  Wide number = 0;
  if (integer) {
    number = signed_of(leaf, value);
  } else {
    __extension__ unsigned __int128 bits = int8_t(value[0]) < 0 ? ~(__extension__(unsigned __int128)(0)) : 0;
    for (const char c : value) bits = bits << 8 | uint8_t(c);
    number = Wide(bits);
  }
  std::string digits;
  for (Wide left = number; left != 0; left /= 10) digits.insert(digits.begin(), char('0' + std::abs(int(left % 10))));
  const auto scale = size_t(leaf.scale);
  if (digits.size() <= scale) digits.insert(0, scale + 1 - digits.size(), '0');
  if (scale > 0) digits.insert(digits.size() - scale, 1, '.');
  (json += number < 0 ? "-" : "") += digits;
}

// As ISO 8601 has it; the number itself where that has no year for it.
bool append_date(std::string& json, int64_t days) {
  constexpr int64_t kFirst = -719528, kLast = 2932896;  // of the years 0 and 9999
  if (days < kFirst || days > kLast) return false;
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(days))};
  fmt::format_to(std::back_inserter(json), "{:04}-{:02}-{:02}", int(date.year()), unsigned(date.month()),
                 unsigned(date.day()));
  return true;
}
void append_time(std::string& json, int64_t ticks, int64_t per_second) {
  const int64_t s = ticks / per_second, fraction = ticks % per_second;
  fmt::format_to(std::back_inserter(json), "{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  if (fraction != 0)
    fmt::format_to(std::back_inserter(json), ".{:0{}}", fraction,
                   per_second == 1000      ? 3
                   : per_second == 1000000 ? 6
                                           : 9);
}
void append_timestamp(std::string& json, int64_t ticks, int64_t per_second, bool utc) {
  const int64_t a_day = 86400 * per_second;
  const int64_t days = ticks / a_day - (ticks % a_day < 0);
  std::string date;
  if (!append_date(date, days)) return void(json += std::to_string(ticks));
  json += '"' + date + 'T';
  append_time(json, ticks - days * a_day, per_second);
  json += utc ? "Z\"" : "\"";
}
// Nanoseconds of a day, then the day as astronomers count them.
void append_int96(std::string& json, std::string_view value) {
  const auto nanoseconds = int64_t(little_endian(value.substr(0, 8)));
  const int64_t days = int64_t(little_endian(value.substr(8))) - 2440588;
  std::string date;
  const bool in_a_day = nanoseconds >= 0 && nanoseconds < 86400 * int64_t{1000000000};
  if (!in_a_day || !append_date(date, days)) return void(json += "null");
  json += '"' + date + 'T';
  append_time(json, nanoseconds, 1000000000);
  json += '"';
}

void append_uuid(std::string& json, std::string_view value) {
  json += '"';
  for (size_t i = 0; i < value.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) json += '-';
    fmt::format_to(std::back_inserter(json), "{:02x}", uint8_t(value[i]));
  }
  json += '"';
}

void append_bytes(std::string& json, const ParquetLeaf& leaf, std::string_view value) {
  if (utf8_error(value) == std::string_view::npos) return append_json_string(json, value);
  if (leaf.form != ParquetForm::kText) return void(json += "null");
  (json += '"') += value;  // broken in any case: quotes and the like in it do not matter
  json += '"';
}

void append_plain(std::string& json, const ParquetLeaf& leaf, std::string_view value) {
  using Type = ParquetType;
  if (leaf.type == Type::kBoolean) return void(json += value[0] != 0 ? "true" : "false");
  if (leaf.type == Type::kFloat) return append_float(json, std::bit_cast<float>(uint32_t(little_endian(value))));
  if (leaf.type == Type::kDouble) return append_float(json, std::bit_cast<double>(little_endian(value)));
  if (leaf.type == Type::kBytes || leaf.type == Type::kFixed) return append_bytes(json, leaf, value);
  json += std::to_string(signed_of(leaf, value));
}

}  // namespace

void append_parquet_value(std::string& json, const ParquetLeaf& leaf, std::string_view value) {
  using Form = ParquetForm;
  if (leaf.form == Form::kNone) return void(json += "null");
  if (leaf.form == Form::kUnsigned) return void(json += std::to_string(little_endian(value)));
  if (leaf.form == Form::kDecimal) return append_decimal(json, leaf, value);
  if (leaf.form == Form::kFloat16) return append_float(json, half(uint16_t(little_endian(value))));
  if (leaf.form == Form::kUuid) return append_uuid(json, value);
  if (leaf.form == Form::kTimestamp && leaf.type == ParquetType::kInt96) return append_int96(json, value);
  if (leaf.form == Form::kTimestamp) return append_timestamp(json, signed_of(leaf, value), leaf.per_second, leaf.utc);
  std::string text;
  const int64_t ticks = leaf.form == Form::kDate || leaf.form == Form::kTime ? signed_of(leaf, value) : -1;
  const bool in_a_day = ticks >= 0 && ticks < 86400 * leaf.per_second;
  if (leaf.form == Form::kTime && in_a_day) append_time(text, ticks, leaf.per_second);
  if (leaf.form == Form::kDate) append_date(text, ticks);
  if (text.empty()) return append_plain(json, leaf, value);  // also of a date or time that there is not
  json += '"' + text + '"';
}

}  // namespace weft
