#include "weft/pipeline/warc_page.h"

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

namespace {

// The body of an HTTP response, out of its chunks and decompressed (gzip), at most `max_bytes`. Throws Error that says
// what is broken or not known.
std::string http_body(std::string_view head, std::string_view body, size_t max_bytes) {
  std::string whole = lower_ascii(header_value(head, "transfer-encoding")).find("chunked") != std::string::npos
                          ? without_chunks(body)
                          : std::string(body);
  const std::string encoding = lower_ascii(header_value(head, "content-encoding"));
  if (encoding.empty() || encoding == "identity") return whole;
  if (encoding != "gzip" && encoding != "x-gzip") throw Error("a page in content-encoding " + encoding.substr(0, 40));
  return compression_of(whole) == Compression::kNone ? whole : decompressed(whole, max_bytes);
}

constexpr size_t kMostPage = 16 << 20;

bool is_page(const std::string& type) {
  return type.starts_with("text/html") || type.starts_with("application/xhtml") || type.starts_with("text/plain");
}

// In lower case (RFC 9110, section 8.3.1). Of a page that was sent without a type: by how it begins.
std::string type_of(std::string_view head, std::string_view page) {
  const std::string said = lower_ascii(header_value(head, "content-type"));
  if (!said.empty()) return said;
  constexpr size_t kLook = 1000;
  const std::string beginning = lower_ascii(page.substr(0, kLook));
  const size_t at = beginning.find_first_not_of(" \t\r\n");
  if (at == std::string::npos) return "";
  const std::string_view first = std::string_view(beginning).substr(at);
  return first.starts_with("<!doctype html") || first.starts_with("<html") ? "text/html" : "";
}

// Archivers keep their own notes as resources, under metadata:// (wget), urn: and the like. A record that does not say
// where it is from may be a page.
bool is_of_a_page(std::string_view target) {
  const std::string scheme = lower_ascii(target.substr(0, target.find(':')));
  return target.empty() || scheme == "http" || scheme == "https" || scheme == "ftp" || scheme == "file";
}

}  // namespace

std::string read_warc_page(std::string_view record, WarcPage& page) {
  const size_t head_size = header_size(record);
  const std::string_view head = record.substr(0, head_size);
  const std::string_view body = record.substr(head_size);
  page.url = header_value(head, "warc-target-uri");
  if (page.url.starts_with('<') && page.url.ends_with('>'))
    page.url = page.url.substr(1, page.url.size() - 2);  // WARC/1.0 of wget
  page.date = header_value(head, "warc-date");
  const std::string kind = header_value(head, "warc-type");
  page.type = type_of(head, body);
  if (kind == "response" && page.type.starts_with("application/http")) {
    const size_t http_size = header_size(body);
    if (http_size == 0) throw Error("a response whose HTTP header does not end");
    const std::string_view http = body.substr(0, http_size);
    const std::string_view status = http.substr(std::min(http.find(' '), http.size()));
    if (!status.starts_with(" 200")) return "no answer 200";
    page.type = lower_ascii(header_value(http, "content-type"));
    if (!page.type.empty() && !is_page(page.type)) return "no page";
    page.bytes = http_body(http, body.substr(http_size), kMostPage);
    page.type = type_of(http, page.bytes);
  } else if (kind != "resource" && kind != "conversion") {
    return "no response";
  } else {
    page.bytes = body;
  }
  if (!is_of_a_page(page.url)) return "no page's address";
  return is_page(page.type) ? "" : "no page";
}

}  // namespace weft
