#include "weft/pipeline/row_document.h"

#include <algorithm>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"
#include "weft/chat/conversation.h"
#include "weft/data/jsonl.h"
#include "weft/pipeline/html_text.h"
#include "weft/pipeline/http.h"
#include "weft/pipeline/json_row.h"
#include "weft/pipeline/unread.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

constexpr size_t kMostPage = 16 << 20;
constexpr JsonLimits kRow{.max_bytes = size_t{1} << 30, .max_depth = 64};

// Keys stay in their order, which templates show.
void read_conversation_row(const SourceConfig& source, const Row& row, Document& d) {
  const auto json = nlohmann::ordered_json::parse(row.bytes);
  if (!json.contains(source.messages_key))
    throw Error(fmt::format("no key {} (source.messages_key)", in_quotes(source.messages_key)));
  nlohmann::ordered_json conversation{{"messages", json[source.messages_key]}};
  for (const char* key : {"tools", "documents", "chat_template_kwargs"})
    if (json.contains(key)) conversation[key] = json[key];
  d.conversation = conversation.dump();
  const chat::Conversation said = chat::read_conversation(row.bytes, "row", source.messages_key);
  for (const chat::Value& message : said.messages.list().items) {
    const std::string text = chat::text_in(message);
    if (!text.empty()) d.text += (d.text.empty() ? "" : "\n\n") + text;
  }
}

void read_json_row(const SourceConfig& source, const Row& row, Document& d) {
  JsonRow json = parse_json_row(row.bytes, source.text_key, "row", kRow);
  const JsonFields fields(json.json, "row");
  if (source.has_conversations())
    read_conversation_row(source, row, d);
  else
    d.text = json.has_text ? json.text : fields.string(source.text_key);
  if (json.has_text) json.json[source.text_key] = std::move(json.text);  // it may be a meta key too
  if (const auto* url = fields.find(source.url_key); url != nullptr && url->is_string()) d.url = *url;
  for (const std::string& key : source.meta_keys)
    if (const auto* value = fields.find(key)) d.meta[key] = *value;
}

void read_csv_row(const SourceConfig& source, const SourceFile& file, const Row& row, Document& d) {
  const std::vector<std::string> fields = csv_fields(row.bytes);
  if (fields.size() != file.columns.size())
    throw Error(fmt::format("{} fields, but the header has {}", fields.size(), file.columns.size()));
  bool found = false;
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string& name = file.columns[i];
    if (name == source.text_key) d.text = fields[i], found = true;
    if (name == source.url_key) d.url = fields[i];
    if (std::find(source.meta_keys.begin(), source.meta_keys.end(), name) != source.meta_keys.end())
      d.meta[name] = fields[i];
  }
  if (!found) throw Error(fmt::format("the header has no column {}", in_quotes(source.text_key)));
}

std::string charset_of(const std::string& content_type) {
  const size_t at = content_type.find("charset=");
  if (at == std::string::npos) return "";
  std::string name = content_type.substr(at + 8, 40);
  name.resize(std::min(name.size(), name.find_first_of("; \t")));
  std::erase(name, '"');
  return name;
}

std::string page_text(const std::string& type, const std::string& body) {
  if (type.find("html") != std::string::npos) return html_text(body, charset_of(type));
  return utf8_of(body, charset_of(type));
}

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

// False and why: a record that is no page.
bool read_warc_record(const Row& row, Document& d, std::string& why) {
  const std::string_view record = row.bytes;
  const size_t head_size = header_size(record);
  const std::string_view head = record.substr(0, head_size);
  std::string_view body = record.substr(head_size);
  d.url = header_value(head, "warc-target-uri");
  if (d.url.starts_with('<') && d.url.ends_with('>')) d.url = d.url.substr(1, d.url.size() - 2);  // WARC/1.0 of wget
  const std::string kind = header_value(head, "warc-type"), date = header_value(head, "warc-date");
  if (!date.empty()) d.meta["date"] = date;
  std::string page(body), type = type_of(head, body);
  if (kind == "response" && type.starts_with("application/http")) {
    const size_t http_size = header_size(body);
    if (http_size == 0) throw Error("a response whose HTTP header does not end");
    const std::string_view http = body.substr(0, http_size);
    const std::string_view status = http.substr(std::min(http.find(' '), http.size()));
    if (!status.starts_with(" 200")) return why = "no answer 200", false;
    type = lower_ascii(header_value(http, "content-type"));
    if (!type.empty() && !is_page(type)) return why = "no page", false;
    page = http_body(http, body.substr(http_size), kMostPage);
    type = type_of(http, page);
  } else if (kind != "resource" && kind != "conversion") {
    return why = "no response", false;
  }
  if (!is_of_a_page(d.url)) return why = "no page's address", false;
  if (!is_page(type)) return why = "no page", false;
  d.text = page_text(type, page);
  if (d.text.empty()) return why = "no text", false;
  return true;
}

// A document is UTF-8 without NUL bytes.
void check_text(const SourceConfig& source, std::string& text) {
  size_t bad = utf8_error(text);
  const char* what = "not UTF-8";
  if (bad == std::string::npos) bad = text.find('\0'), what = "a NUL byte";
  if (bad == std::string::npos) return;
  if (source.invalid_text == "aside" || source.has_conversations())
    throw Error(fmt::format("{} at byte {} of the text", what, bad));
  std::string copy, clean(well_formed(text, copy));
  text.clear();
  for (const char c : clean) c == '\0' ? void(text += "\ufffd") : void(text += c);
}

void judge_columns(const SourceFile& file, const SourceConfig& source) {
  const auto count = [&](const std::string& name) {
    return std::count(file.columns.begin(), file.columns.end(), name);
  };
  const auto refuse = [&](const char* what, const std::string& name) {
    std::string all;
    for (const std::string& column : file.columns) all += (all.empty() ? "" : ", ") + column;
    throw UnreadFile(file.path, fmt::format("the header has {} {}: it is {}", what, in_quotes(name), in_quotes(all)));
  };
  std::vector<std::string> read = source.meta_keys;
  read.insert(read.end(), {source.text_key, source.url_key});
  for (const std::string& name : read)
    if (count(name) > 1) refuse("more than one column", name);
  if (count(source.text_key) == 0) refuse("no column (source.text_key)", source.text_key);
}

}  // namespace

FileFormat format_of(const SourceConfig& source, const std::string& file) {
  const std::filesystem::path name = without_compression(file);
  const std::string extension = name.extension().string(), said = source.format;
  if (said == "jsonl" || (said == "auto" && (is_jsonl(name) || source.has_conversations()))) return FileFormat::kJsonl;
  if (said == "csv" || (said == "auto" && extension == ".csv")) return FileFormat::kCsv;
  if (said == "warc" || (said == "auto" && extension == ".warc")) return FileFormat::kWarc;
  const bool html = extension == ".html" || extension == ".htm" || extension == ".xhtml";
  if (said == "html" || (said == "auto" && html)) return FileFormat::kHtml;
  return FileFormat::kText;
}

std::unique_ptr<RowReader> open_rows(const SourceConfig& source, const SourceFile& file, ByteWatcher* watcher,
                                     const ReadConfig& limits) {
  Input input(open_file_stream(file.path, {.max_ratio = limits.max_ratio}, watcher));
  if (const std::string why = why_not_read(input.peek(kKindBytes)); !why.empty()) throw UnreadFile(file.path, why);
  const int64_t most = limits.max_row_mb << 20;
  if (file.format == FileFormat::kCsv) return read_csv(std::move(input), most);
  if (file.format == FileFormat::kWarc) return read_warc(std::move(input), most);
  if (file.format == FileFormat::kHtml) return read_separated(std::move(input), "", most);
  auto rows = read_separated(std::move(input), file.format == FileFormat::kJsonl ? "\n" : source.separator, most);
  const bool json = without_compression(file.path).extension() == ".json";
  if (json && file.format == FileFormat::kJsonl && rows->next_visible() == '[')
    throw UnreadFile(file.path, "is a JSON array, not lines: write each of its objects on a line of its own");
  return rows;
}

std::unique_ptr<RowReader> open_documents(const SourceConfig& source, SourceFile& file, ByteWatcher* watcher,
                                          const ReadConfig& limits) {
  auto rows = open_rows(source, file, watcher, limits);
  Row header;
  if (file.format != FileFormat::kCsv || !rows->next(header)) return rows;
  try {
    if (header.broken.empty()) file.columns = csv_fields(header.bytes);
  } catch (const Error&) {}  // without columns, each row is broken
  if (!file.columns.empty()) judge_columns(file, source);
  return rows;
}

std::vector<std::string> csv_fields(std::string_view record) {
  std::vector<std::string> fields(1);
  size_t at = 0;
  while (at < record.size()) {
    if (record[at] == '"') {
      for (++at;; ++at) {
        const size_t quote = record.find('"', at);
        if (quote == std::string_view::npos) throw Error("a quote that is not closed");
        fields.back() += record.substr(at, quote - at);
        at = quote + 1;
        if (at >= record.size() || record[at] != '"') break;
        fields.back() += '"';
      }
      if (at < record.size() && record[at] != ',') throw Error("text after a closing quote");
    } else {
      const size_t end = std::min(record.find(',', at), record.size());
      const std::string_view field = record.substr(at, end - at);
      if (field.find('"') != std::string_view::npos) throw Error("a quote within a field that does not begin with one");
      fields.back() = field;
      at = end;
    }
    if (at < record.size()) {
      fields.emplace_back();
      ++at;
    }
  }
  return fields;
}

bool read_document(const SourceConfig& source, const SourceFile& file, const Row& row, Document& d, std::string& why) {
  d.source = source.name;
  d.origin = {.file = file.path, .row = row.number, .begin = row.begin, .end = row.end};
  const auto blank = [](const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; };
  if (file.format == FileFormat::kWarc) {
    if (!read_warc_record(row, d, why)) return false;
  } else if (blank(row.bytes)) {
    return why = "blank", false;
  } else if (file.format == FileFormat::kJsonl) {
    read_json_row(source, row, d);
  } else if (file.format == FileFormat::kCsv) {
    read_csv_row(source, file, row, d);
  } else if (file.format == FileFormat::kHtml) {
    d.text = html_text(row.bytes, "");
    if (d.text.empty()) return why = "no text", false;
  } else {
    d.text = row.bytes;
  }
  check_text(source, d.text);
  std::string copy;
  d.url = std::string(well_formed(d.url, copy));
  if (blank(d.text)) return why = "blank", false;
  return true;
}

}  // namespace weft
