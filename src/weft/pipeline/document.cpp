#include "weft/pipeline/document.h"

#include <fmt/format.h>

#include <charconv>

#include "weft/base/json.h"
#include "weft/pipeline/json_row.h"

namespace weft {
namespace {

constexpr JsonLimits kLine{.max_bytes = size_t{1} << 31, .max_depth = 64};

}  // namespace

DocumentId parse_document_id(const JsonFields& fields) {
  const std::string text = fields.string("id");
  DocumentId id;
  const char* end = text.data() + text.size();
  const auto shard = std::from_chars(text.data(), end, id.shard);
  if (shard.ec == std::errc() && shard.ptr != end && *shard.ptr == '.') {
    const auto place = std::from_chars(shard.ptr + 1, end, id.place);
    if (place.ec == std::errc() && place.ptr == end) return id;
  }
  fields.fail("id", "two numbers, as in \"12.345\"");
}

std::string DocumentId::text() const { return fmt::format("{}.{}", shard, place); }

std::string to_line(const Document& d) {
  std::string line;
  line.reserve(d.text.size() + d.text.size() / 8 + 500);
  const auto add_string = [&](const char* key, const std::string& value) {
    line += key;
    append_json_string(line, value);
  };
  line += fmt::format("{{\"begin\":{}", d.origin.begin);
  if (!d.conversation.empty()) add_string(",\"conversation\":", d.conversation);
  line += fmt::format(",\"end\":{}", d.origin.end);
  add_string(",\"file\":", d.origin.file);
  line += fmt::format(",\"id\":\"{}\"", d.id.text());
  if (!d.meta.empty()) line += ",\"meta\":" + d.meta.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  line += fmt::format(",\"row\":{}", d.origin.row);
  add_string(",\"source\":", d.source);
  add_string(",\"text\":", d.text);
  if (!d.url.empty()) add_string(",\"url\":", d.url);
  return line += "}\n";
}

Document document_of_line(std::string_view line, const std::string& where) {
  JsonRow row = parse_json_row(line, "text", where, kLine);
  const JsonFields fields(row.json, where);
  Document d;
  d.id = parse_document_id(fields);
  d.source = fields.string("source");
  d.origin = {.file = fields.string("file"),
              .row = fields.integer("row", {}),
              .begin = fields.integer("begin", {.min = 0}),
              .end = fields.integer("end", {.min = 0})};
  d.url = fields.string("url", "");
  d.conversation = fields.string("conversation", "");
  if (fields.has("meta")) d.meta = fields.object("meta").json();
  d.text = row.has_text ? std::move(row.text) : fields.string("text");
  return d;
}

}  // namespace weft
