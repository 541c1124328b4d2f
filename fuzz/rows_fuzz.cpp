// Any bytes as a file of each format (the first byte says which): rows lie in order within it, none is lost in silence,
// and each is a document, no document, or an Error.
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/utf8.h"
#include "weft/pipeline/document_reader.h"

namespace {

std::unique_ptr<weft::RowReader> open(uint8_t format, std::string_view bytes) {
  weft::Input input(weft::open_memory_reader(bytes, {.max_ratio = 50, .free_bytes = 1 << 16}));
  constexpr int64_t kMostRow = 1 << 12;
  if (format & 8) return weft::read_json(std::move(input), {"text"}, kMostRow);
  if (format % 4 == 1) return weft::read_csv(std::move(input), kMostRow);
  if (format % 4 == 2) return weft::read_warc(std::move(input), kMostRow);
  return weft::read_separated(std::move(input), format % 4 == 0 ? "\n" : "\n\n", kMostRow);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto rows = open(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  constexpr weft::FileFormat kFormats[] = {weft::FileFormat::kJsonl, weft::FileFormat::kCsv, weft::FileFormat::kWarc,
                                           weft::FileFormat::kText};
  const weft::SourceFile file{.path = "fuzz",
                              .format = data[0] & 8 ? weft::FileFormat::kJsonl : kFormats[data[0] % 4],
                              .columns = {"text", "url"}};
  weft::SourceConfig source;
  source.name = "fuzz";
  if (data[0] & 4) source.invalid_text = "repair";
  weft::DocumentReader reader(source);
  weft::Row row;
  int64_t number = 0, end = 0;
  while (rows->next(row)) {
    if (row.number <= number || row.begin < end || row.end < row.begin) std::abort();  // empty rows count
    number = row.number, end = row.end;
    if (!row.broken.empty()) continue;
    try {
      weft::Document d;
      if (!reader.read(file, row, d).empty()) continue;
      d.origin.row = row.number;
      if (weft::utf8_error(d.text) != std::string::npos || d.text.find('\0') != std::string::npos) std::abort();
      const std::string line = weft::to_line(d);
      if (weft::document_of_line(std::string_view(line).substr(0, line.size() - 1), "fuzz").text != d.text)
        std::abort();
    } catch (const weft::Error&) {}
  }
  return 0;
}
