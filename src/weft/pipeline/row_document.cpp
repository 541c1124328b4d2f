#include "weft/pipeline/row_document.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/data/jsonl.h"
#include "weft/pipeline/keys_seen.h"

namespace weft {
namespace {

void judge_columns(const SourceFile& file, const SourceConfig& source) {
  const auto count = [&](const std::string& name) {
    return std::count(file.columns.begin(), file.columns.end(), name);
  };
  const auto refuse = [&](const std::string& what, const std::string& name) {
    const std::string all = fmt::format("{}", fmt::join(file.columns, ", "));
    throw UnreadFile(file.path, fmt::format("the header has {} {}: it is {}", what, in_quotes(name), in_quotes(all)));
  };
  std::vector<AskedKey> asked = asked_keys(source);
  asked.push_back({source.url_key, "source.url_key"});
  for (const AskedKey& one : asked)
    if (count(one.key) > 1) refuse("more than one column", one.key);
  for (const AskedKey& one : asked)
    if (one.needed && count(one.key) == 0) refuse(fmt::format("no column ({})", one.by), one.key);
}

// Keys of a row's outermost object, which tell it from an object that holds the rows.
std::vector<std::string> row_keys(const SourceConfig& source) {
  std::vector<std::string> keys;
  for (const AskedKey& asked : asked_keys(source))
    if (asked.needed) keys.insert(keys.end(), {asked.key, asked.key.substr(0, asked.key.find('.'))});
  return keys;
}

// Parquet is read from its end, so not as a stream.
std::unique_ptr<RowReader> open_parquet(const SourceFile& file, Input& input, int64_t most, const ReadConfig& limits) {
  if (!input.peek(4).starts_with("PAR")) throw UnreadFile(file.path, "is not Parquet: it does not begin with PAR1");
  if (compression_of_file(file.path) != Compression::kNone)
    throw UnreadFile(file.path, "is Parquet that was compressed as a whole: decompress it");
  return read_parquet(file.path, most, {.max_ratio = limits.max_ratio});
}

}  // namespace

bool has_json_rows(FileFormat format) { return format == FileFormat::kJsonl || format == FileFormat::kParquet; }

FileFormat format_of(const SourceConfig& source, const std::string& file) {
  const std::filesystem::path name = without_compression(file);
  const std::string extension = name.extension().string(), said = source.format;
  const bool parquet = extension == ".parquet" || extension == ".parq";
  if (said == "parquet" || (said == "auto" && parquet)) return FileFormat::kParquet;
  const bool pairs = !source.prompt_key.empty() && extension != ".csv";
  const bool lines = is_jsonl(name) || !source.messages_key.empty() || pairs;
  if (said == "jsonl" || (said == "auto" && lines)) return FileFormat::kJsonl;
  if (said == "csv" || (said == "auto" && extension == ".csv")) return FileFormat::kCsv;
  if (said == "warc" || (said == "auto" && extension == ".warc")) return FileFormat::kWarc;
  const bool html = extension == ".html" || extension == ".htm" || extension == ".xhtml";
  if (said == "html" || (said == "auto" && html)) return FileFormat::kHtml;
  return FileFormat::kText;
}

std::unique_ptr<RowReader> open_rows(const SourceConfig& source, const SourceFile& file, ByteWatcher* watcher,
                                     const ReadConfig& limits) {
  Input input(open_file_reader(file.path, {.max_ratio = limits.max_ratio}, watcher));
  const int64_t most = limits.max_row_mb << 20;
  if (file.format == FileFormat::kParquet) return open_parquet(file, input, most, limits);
  if (const std::string why = why_not_read(input.peek(kKindBytes)); !why.empty()) throw UnreadFile(file.path, why);
  if (file.format == FileFormat::kCsv) return read_csv(std::move(input), most);
  if (file.format == FileFormat::kWarc) return read_warc(std::move(input), most);
  if (file.format == FileFormat::kHtml) return read_separated(std::move(input), "", most);
  if (file.format == FileFormat::kJsonl) return read_json(std::move(input), row_keys(source), most);
  return read_separated(std::move(input), source.separator, most);
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

}  // namespace weft
