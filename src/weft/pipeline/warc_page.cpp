#include "weft/pipeline/warc_page.h"

#include <algorithm>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/pipeline/http.h"

namespace weft {
namespace {

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
