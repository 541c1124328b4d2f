#include "weft/pipeline/http.h"

#include <algorithm>
#include <charconv>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/pipeline/byte_reader.h"

namespace weft {
namespace {

std::string_view trimmed(std::string_view s) {
  const size_t from = s.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return s.substr(from, s.find_last_not_of(" \t\r") - from + 1);
}

// RFC 9112, section 7.1. What is not in chunks, though its header says so, is taken as it is: archives hold such pages.
std::string without_chunks(std::string_view body) {
  std::string whole;
  for (std::string_view rest = body;;) {
    const size_t line = rest.find("\r\n");
    uint64_t size = 0;
    if (line == std::string_view::npos) break;
    const auto number = std::from_chars(rest.data(), rest.data() + line, size, 16);
    if (number.ec != std::errc() || size > rest.size() - line - 2) break;
    rest.remove_prefix(line + 2);
    if (size == 0) return whole;
    whole += rest.substr(0, size);
    rest.remove_prefix(size);
    if (rest.starts_with("\r\n")) rest.remove_prefix(2);
  }
  return whole.empty() ? std::string(body) : whole;
}

std::string decompressed(std::string_view body, size_t max_bytes) {
  const auto stream = open_memory_reader(body, {});
  std::string whole, piece(1 << 16, '\0');
  while (const size_t n = stream->read(piece)) {
    if (whole.size() + n > max_bytes) throw Error(fmt::format("a page of more than {} bytes", max_bytes));
    whole.append(piece, 0, n);
  }
  return whole;
}

}  // namespace

size_t header_size(std::string_view message) {
  const size_t windows = message.find("\r\n\r\n"), unix = message.find("\n\n");
  if (windows == unix) return 0;  // neither
  return windows < unix ? windows + 4 : unix + 2;
}

std::string header_value(std::string_view head, std::string_view name) {
  for (size_t at = 0; at < head.size();) {
    const size_t end = std::min(head.find('\n', at), head.size());
    const std::string_view line = head.substr(at, end - at);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && lower_ascii(trimmed(line.substr(0, colon))) == name)
      return std::string(trimmed(line.substr(colon + 1)));
    at = end + 1;
  }
  return "";
}

std::string http_body(std::string_view head, std::string_view body, size_t max_bytes) {
  std::string whole = lower_ascii(header_value(head, "transfer-encoding")).find("chunked") != std::string::npos
                          ? without_chunks(body)
                          : std::string(body);
  const std::string encoding = lower_ascii(header_value(head, "content-encoding"));
  if (encoding.empty() || encoding == "identity") return whole;
  if (encoding != "gzip" && encoding != "x-gzip") throw Error("a page in content-encoding " + encoding.substr(0, 40));
  return compression_of(whole) == Compression::kNone ? whole : decompressed(whole, max_bytes);
}

}  // namespace weft
