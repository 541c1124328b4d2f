#include "weft/base/byte_size.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "weft/base/ascii.h"

namespace weft {
namespace {

struct ByteUnit {
  std::string_view name;
  double bytes;
};
constexpr double kKi = 1024, kKilo = 1000;
constexpr std::array kByteUnits{ByteUnit{"", 1},
                                ByteUnit{"b", 1},
                                ByteUnit{"kib", kKi},
                                ByteUnit{"mib", kKi* kKi},
                                ByteUnit{"gib", kKi* kKi* kKi},
                                ByteUnit{"tib", kKi* kKi* kKi* kKi},
                                ByteUnit{"kb", kKilo},
                                ByteUnit{"mb", kKilo* kKilo},
                                ByteUnit{"gb", kKilo* kKilo* kKilo},
                                ByteUnit{"tb", kKilo* kKilo* kKilo* kKilo}};
constexpr double kMostBytes = double(int64_t{1} << 62);

}  // namespace

std::optional<int64_t> byte_size_of(std::string_view text) {
  const size_t end = text.find_first_not_of("0123456789.");
  const std::string number(text.substr(0, end));
  std::string_view unit = end == std::string_view::npos ? "" : text.substr(end);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  double value = 0;
  const auto read = std::from_chars(number.data(), number.data() + number.size(), value, std::chars_format::fixed);
  if (number.empty() || read.ec != std::errc() || read.ptr != number.data() + number.size()) return {};
  for (const ByteUnit& u : kByteUnits) {
    if (u.name != lower_ascii(unit)) continue;
    const double bytes = std::floor(value * u.bytes);
    return bytes >= 1 && bytes <= kMostBytes ? std::optional(int64_t(bytes)) : std::nullopt;
  }
  return {};
}

std::string byte_size_text(int64_t bytes) {
  const std::pair<const char*, double> units[] = {{"GiB", kKi * kKi * kKi}, {"MiB", kKi * kKi}, {"KiB", kKi}};
  for (const auto& [name, unit] : units)
    if (double(bytes) >= unit) {
      const std::string text = fmt::format("{:.2f}{}", std::ceil(double(bytes) / unit * 100) / 100, name);
      if (byte_size_of(text) >= bytes) return text;
    }
  return fmt::format("{}B", bytes);
}

}  // namespace weft
