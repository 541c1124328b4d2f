#include "weft/pipeline/document_reader.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/json_path.h"
#include "weft/base/utf8.h"
#include "weft/chat/conversation.h"
#include "weft/pipeline/charset.h"
#include "weft/pipeline/html_text.h"
#include "weft/pipeline/json_row.h"
#include "weft/pipeline/row_encoder.h"
#include "weft/pipeline/warc_page.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

constexpr JsonLimits kRow{.max_bytes = size_t{1} << 30, .max_depth = 64};

using Ordered = nlohmann::ordered_json;  // keys stay in their order, which templates show

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

// The list of messages in a prompt or completion; nullptr if it is no list.
const Ordered* list_of(const RowTemplate& field, const Ordered& row) {
  const Ordered* found = field.key() == nullptr ? nullptr : find_path(row, *field.key());
  return found != nullptr && found->is_array() ? found : nullptr;
}

// The messages of a prompt or a completion: a text is one, a list is them.
void add_messages(const RowTemplate& field, const nlohmann::json& row, const Ordered* list, const char* role,
                  Ordered& messages) {
  if (list != nullptr) return append_messages(*list, role, messages);
  std::string text = field.fill(row);
  if (const size_t bad = utf8_error(text); bad != std::string::npos)  // of CSV: JSON was judged
    throw Error(fmt::format("not UTF-8 at byte {} of what the {} says", bad, role));
  append_messages(std::move(text), role, messages);
}

// What its messages say.
void set_conversation(Document& d, std::string json, const chat::Conversation& said) {
  d.conversation = std::move(json);
  for (const chat::Value& message : said.messages.list().items) {
    for (const std::string& text : {chat::text_in(message), chat::calls_in(message)})
      if (!text.empty()) d.text += (d.text.empty() ? "" : "\n\n") + text;
  }
}

}  // namespace

DocumentReader::DocumentReader(const SourceConfig& source)
    : source_(source),
      text_(source.text_key),
      prompt_(source.prompt_key),
      completion_(source.completion_key),
      asked_(asked_keys(source)) {
  keys_.source = source.name;
}

std::string DocumentReader::read(const SourceFile& file, const Row& row, Document& d) {
  d.source = source_.name;
  d.origin = {.file = file.path, .row = row.number, .begin = row.begin, .end = row.end};
  if (file.format == FileFormat::kWarc) {
    if (std::string why = read_warc(row, d); !why.empty()) return why;
  } else if (is_blank(row.bytes)) {
    return "blank";
  } else if (has_json_rows(file.format)) {
    read_json(row, d);
  } else if (file.format == FileFormat::kCsv) {
    read_csv(file, row, d);
  } else if (file.format == FileFormat::kHtml) {
    // The row begins behind a byte order mark, which says what the page is in.
    read_page(row.begin == 0 ? row.bytes : "\ufeff" + row.bytes, "text/html", d);
    if (d.text.empty()) return "no text";
  } else {
    d.text = row.bytes;
  }
  check_text(d.text);
  std::string copy;
  d.url = std::string(well_formed(d.url, copy));
  return is_blank(d.text) ? "blank" : "";
}

void DocumentReader::read_json(const Row& row, Document& d) {
  const bool has_texts = !source_.has_conversations();
  const std::string* key = has_texts ? text_.key() : nullptr;
  JsonRow json = parse_json_row(row.bytes, key != nullptr ? *key : "", "row", kRow);
  const JsonFields is_object(json.json, "row");
  keys_.see(json.json, asked_);
  if (json.has_text && key == nullptr) json.json[""] = std::move(json.text);  // a key without a name
  if (json.has_text && key != nullptr)
    d.text = std::move(json.text);
  else if (has_texts)
    read_text(json.json, d);
  else if (!source_.messages_key.empty())
    read_messages(row, d);
  else
    read_pair(json.json, Ordered::parse(row.bytes), d);
  const std::vector<std::string>& meta = source_.meta_keys;
  if (json.has_text && key != nullptr && std::find(meta.begin(), meta.end(), *key) != meta.end())
    json.json[*key] = d.text;
  read_beside(json.json, d);
}

void DocumentReader::read_csv(const SourceFile& file, const Row& row, Document& d) {
  std::vector<std::string> fields = csv_fields(row.bytes);
  if (fields.size() != file.columns.size())
    throw Error(fmt::format("{} fields, but the header has {}", fields.size(), file.columns.size()));
  nlohmann::json json = nlohmann::json::object();
  for (size_t i = 0; i < fields.size(); ++i) json[file.columns[i]] = std::move(fields[i]);
  keys_.see(json, asked_);
  source_.has_conversations() ? read_pair(json, Ordered::object(), d) : read_text(json, d);
  read_beside(json, d);
}

void DocumentReader::read_messages(const Row& row, Document& d) const {
  const std::string& key = source_.messages_key;
  const auto json = Ordered::parse(row.bytes);
  const auto* messages = find_path(json, key);
  if (messages == nullptr)
    throw Error(
        fmt::format("no key {} (source.messages_key); there are {}", in_quotes(key), key_list(nlohmann::json(json))));
  Ordered conversation{{"messages", *messages}};
  add_system(json, conversation["messages"]);
  for (const char* also : {"tools", "documents", "chat_template_kwargs"})
    if (json.contains(also)) conversation[also] = json[also];
  set_conversation(d, conversation.dump(), chat::read_conversation(row.bytes, "row", key));
}

void DocumentReader::read_text(const nlohmann::json& row, Document& d) const {
  const nlohmann::json* text = text_.key() == nullptr ? nullptr : find_path(row, *text_.key());
  if (text != nullptr && !text->is_null() && !text->is_string())
    throw Error(fmt::format("{}: expected a string, got {}", in_quotes(*text_.key()), shown(*text)));
  d.text = text_.fill(row);
}

// `written`: the same row, with its keys in their order; of CSV, which has no lists, nothing.
void DocumentReader::read_pair(const nlohmann::json& row, const Ordered& written, Document& d) const {
  const Ordered *prompt = list_of(prompt_, written), *completion = list_of(completion_, written);
  Ordered conversation, messages = Ordered::array();
  add_messages(prompt_, row, prompt, "user", messages);
  add_messages(completion_, row, completion, "assistant", messages);
  const bool asked = std::any_of(asked_.begin(), asked_.end(), [](const AskedKey& k) { return k.key == "system"; });
  if (!asked && row.contains("system") && row["system"].is_string())
    add_system(Ordered{{"system", row["system"].get<std::string>()}}, messages);
  conversation["messages"] = std::move(messages);
  // Beside texts, a column called "tools" may be anything.
  const bool has_tools = (prompt != nullptr || completion != nullptr) && written.contains("tools");
  if (has_tools) conversation["tools"] = written["tools"];
  const std::string json = conversation.dump();
  set_conversation(d, json, chat::read_conversation(json, "row"));
}

void DocumentReader::read_beside(const nlohmann::json& row, Document& d) const {
  const nlohmann::json* url = find_path(row, source_.url_key);
  if (url != nullptr && url->is_string()) d.url = *url;
  for (const std::string& key : source_.meta_keys)
    if (const nlohmann::json* value = find_path(row, key); value != nullptr && !value->is_null()) d.meta[key] = *value;
}

std::string DocumentReader::read_warc(const Row& row, Document& d) {
  WarcPage page;
  if (std::string why = read_warc_page(row.bytes, page); !why.empty()) return why;
  d.url = page.url;
  if (!page.date.empty()) d.meta["date"] = page.date;
  read_page(page.bytes, page.type, d);
  return d.text.empty() ? "no text" : "";
}

// `type`: Content-Type.
void DocumentReader::read_page(const std::string& bytes, const std::string& type, Document& d) {
  const bool html = type.find("html") != std::string::npos;
  const std::string label = charset_label_in(type);
  Decoded page = html ? decode_page(bytes, label) : decode_text(bytes, label);
  if (page.replaced > 0 && source_.invalid_text == "aside")
    throw Error(fmt::format(
        "{} not {} in the page{} (source.invalid_text)",
        page.replaced == 1 ? "1 place is" : fmt::format("{} places are", page.replaced), page.charset,
        page.first_bad == std::string::npos ? "" : fmt::format(", the first at its byte {}", page.first_bad)));
  if (page.replaced > 0) changed_["read.repaired"] += page.replaced, d.meta["repaired"] = page.replaced;
  if (page.unknown_label) ++changed_["read.unknown_charset"];
  if (page.guessed) ++changed_["read.guessed_charset"];
  if (page.charset != "utf-8") d.meta["charset"] = page.charset;
  d.text = html ? html_text(page.text) : std::move(page.text);
}

// A document is UTF-8 without NUL bytes.
void DocumentReader::check_text(std::string& text) {
  size_t bad = utf8_error(text);
  const char* what = "not UTF-8";
  if (bad == std::string::npos) bad = text.find('\0'), what = "a NUL byte";
  if (bad == std::string::npos) return;
  if (source_.invalid_text == "aside" || source_.has_conversations())
    throw Error(fmt::format("{} at byte {} of the text", what, bad));
  Decoded repaired = repair_utf8(text);
  changed_["read.repaired"] += repaired.replaced;
  text = std::move(repaired.text);
}

}  // namespace weft
