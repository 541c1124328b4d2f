#include "weft/pipeline/file_texts.h"

#include <system_error>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/not_built.h"
#include "weft/data/jsonl.h"
#include "weft/pipeline/document_reader.h"
#include "weft/pipeline/row_reader.h"
#include "weft/pipeline/row_template.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

FileFormat format_of(const fs::path& file) { return format_of(SourceConfig{}, file.string()); }

std::string conversation_hint_of(const std::string& row) {
  try {
    return conversation_hint(parse_json(row, ""));
  } catch (const FileError&) { return ""; }
}

// Rows that can be read, with their places. Throws FileError for one that cannot.
void for_each_whole_row(RowReader& rows, const std::string& file,
                        const std::function<void(const Row&, const std::string& where)>& take) {
  for (Row row; rows.next(row);) {
    const std::string where = fmt::format("{}: row {}", file, row.number);
    if (!row.broken.empty()) throw FileError(fmt::format("{}: {}", where, row.broken));
    take(row, where);
  }
}

// Whether a file is Parquet, compressed, or JSON that is no lines.
bool is_beyond_lines(const fs::path& file, const std::vector<std::string>& row_keys) {
  if (format_of(file) == FileFormat::kParquet || compression_of_file(file) != Compression::kNone) return true;
  if (!has_row_texts(file)) return false;
  Input input(open_file_reader(file, {}, nullptr));
  return !is_json_lines(input, row_keys, ReadConfig().max_row_mb << 20);
}

// Fields that tell a row with completions from an object that holds the rows.
std::vector<std::string> row_keys() {
  return {"prompt", "chosen", "rejected", "completion", "chosen_messages", "label", "kto_tag"};
}

void for_each_json_row(const fs::path& path, const std::function<void(const JsonlRow&)>& take) {
  SourceConfig source;
  source.text_key = fmt::format("{{{}}}", fmt::join(row_keys(), "}{"));
  const bool parquet = format_of(path) == FileFormat::kParquet;
  const SourceFile file{
      .path = path.string(), .format = parquet ? FileFormat::kParquet : FileFormat::kJsonl, .columns = {}};
  const auto rows = open_rows(source, file, nullptr, {});
  for_each_whole_row(*rows, file.path, [&](const Row& row, const std::string& where) {
    if (row.bytes.find_first_not_of(" \t\r\n") == std::string::npos) return;
    const nlohmann::json json = parse_json(row.bytes, where);
    take({.json = json, .text = row.bytes, .where = where, .line = row.number, .done = size_t(rows->bytes_in())});
  });
}

void for_each_document_of(const fs::path& file, const std::string& text_key,
                          const std::function<void(std::string_view document, double done)>& take) {
  if (has_row_texts(file)) return for_each_row_text(file, text_key, take);
  const std::string text = whole_text(file);
  if (const std::string why = why_not_read(text); !why.empty()) throw FileError(file.string() + ": " + why);
  take(text, 1);
}

}  // namespace

bool has_row_texts(const fs::path& file) { return has_json_rows(format_of(file)); }

std::string whole_text(const fs::path& file) {
  const auto stream = open_file_reader(file, {}, nullptr);
  std::string whole, piece(1 << 20, '\0');
  try {
    while (const size_t n = stream->read(piece)) whole.append(piece, 0, n);
  } catch (const FileError&) { throw; } catch (const NotBuilt&) {
    throw;
  } catch (const Error& e) { throw FileError(fmt::format("{}: {}", file.string(), e.what())); }
  return whole;
}

void for_each_row_text(const fs::path& path, const std::string& text_key,
                       const std::function<void(std::string_view text, double done)>& take) {
  SourceConfig source;
  source.text_key = text_key;
  SourceFile file{.path = path.string(), .format = format_of(path), .columns = {}};
  const auto rows = open_documents(source, file, nullptr, {});
  DocumentReader reader(source);
  std::error_code none;
  const double size = double(std::max<uintmax_t>(fs::file_size(path, none), 1));
  for_each_whole_row(*rows, file.path, [&](const Row& row, const std::string& where) {
    Document d;
    try {
      if (!reader.read(file, row, d).empty()) return;
    } catch (const NotBuilt&) { throw; } catch (const Error& e) {
      const std::string hint = conversation_hint_of(row.bytes);
      throw FileError(fmt::format("{}: {}", where, hint.empty() ? e.what() : hint));
    }
    take(d.text, std::min(1.0, double(rows->bytes_in()) / size));
  });
}

DocumentFiles more_document_files() {
  return {.reads =
              [](const fs::path& file, const std::string& text_key) {
                return (has_row_texts(file) && RowTemplate(text_key).key() == nullptr) ||
                       is_beyond_lines(file, {text_key});
              },
          .for_each = for_each_document_of};
}

RowFiles more_row_files() {
  return {.reads = [](const fs::path& file) { return is_beyond_lines(file, row_keys()); },
          .for_each = for_each_json_row};
}

}  // namespace weft
