#include "weft/pipeline/document.h"

#include <fmt/format.h>

#include <charconv>

#include "weft/base/json.h"

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
  nlohmann::json json = {{"id", d.id.text()},   {"source", d.source},      {"file", d.origin.file},
                         {"row", d.origin.row}, {"begin", d.origin.begin}, {"end", d.origin.end},
                         {"text", d.text}};
  if (!d.url.empty()) json["url"] = d.url;
  if (!d.conversation.empty()) json["conversation"] = d.conversation;
  if (!d.meta.empty()) json["meta"] = d.meta;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Document document_of_line(std::string_view line, const std::string& where) {
  nlohmann::json json = parse_json(line, where, kLine);
  const JsonFields fields(json, where);
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
  d.text = fields.string("text");
  return d;
}

}  // namespace weft
