// From a file to its rows.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/row_reader.h"

namespace weft {

enum class FileFormat { kText, kJsonl, kParquet, kCsv, kWarc, kHtml };
// Whether rows are JSON: of JSON files and Parquet.
bool has_json_rows(FileFormat format);
// What `source.format` says, or by the name, without .gz, .zst, .xz, .bz2, .lz4; text where it tells nothing.
FileFormat format_of(const SourceConfig& source, const std::string& file);

// A file that is being read; rows share it.
struct SourceFile {
  std::string path;
  FileFormat format = FileFormat::kText;
  std::vector<std::string> columns;  // of CSV
};

// Throws FileError where it cannot be opened; UnreadFile for a file of another kind.
std::unique_ptr<RowReader> open_rows(const SourceConfig& source, const SourceFile& file, ByteWatcher* watcher,
                                     const ReadConfig& limits);
// The same for documents: of CSV, the header is read, into file.columns. Throws UnreadFile also where it has no column
// of the text, or two of a name that is asked for.
std::unique_ptr<RowReader> open_documents(const SourceConfig& source, SourceFile& file, ByteWatcher* watcher,
                                          const ReadConfig& limits);

// The fields of one CSV record. Throws Error where the quotes are not as RFC 4180 wants them.
std::vector<std::string> csv_fields(std::string_view record);

}  // namespace weft
