#include "weft/pipeline/document.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/pipeline/byte_reader.h"
#include "weft/pipeline/codec.h"
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

namespace {

constexpr int kLevel = 1;  // a shard is read a few times and then forgotten

}  // namespace

std::string ShardWriter::commit(const std::filesystem::path& file) const {
  const bool zst = file.extension() == ".zst";
  const std::string bytes = zst ? zstd_compressed(lines_, kLevel) : std::string();
  const std::string_view content = zst ? bytes : lines_;
  write_file_durably(file, content, kOwnName);
  return to_hex(hash128(content));
}

void for_each_line_of(const std::filesystem::path& file,
                      const std::function<void(std::string_view line, int64_t number)>& take) {
  constexpr size_t kNoLimit = std::numeric_limits<size_t>::max() / 2;
  Input input(open_file_reader(file, {.max_ratio = std::numeric_limits<double>::infinity()}, nullptr));
  int64_t number = 0;
  while (!input.peek(1).empty()) {
    const size_t end = input.find("\n", 0, kNoLimit);
    if (end == std::string_view::npos) {
      const std::string why = input.failure().empty() ? "ends within a line" : input.failure();
      throw FileError(fmt::format("{}: line {}: {}; run the stage again", file.string(), number + 1, why));
    }
    take(input.peek(end).substr(0, end), ++number);
    input.skip(end + 1);
  }
  if (!input.failure().empty()) throw FileError(fmt::format("{}: {}", file.string(), input.failure()));
}

void for_each_in_shard(const std::filesystem::path& file, const std::function<void(Document&&)>& take) {
  for_each_line_of(file, [&](std::string_view line, int64_t number) {
    take(document_of_line(line, fmt::format("{}: line {}", file.string(), number)));
  });
}

}  // namespace weft
