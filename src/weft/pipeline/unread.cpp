#include "weft/pipeline/unread.h"

namespace weft {
namespace {

struct Kind {
  size_t at;
  std::string_view mark;
  const char *name, *advice;
};
constexpr const char *kRows = "write its rows as JSON lines", *kUnpack = "unpack it",
                     *kText = "write its text to a file", *kAgain = "compress it by gzip, zstd, xz, bzip2 or lz4";

// Byte sequences that no text begins with; those of letters only include the bytes behind them.
constexpr Kind kKinds[] = {
    {0, "PAR1\x15", "Parquet", "name it .parquet, or set source.format = \"parquet\""},
    {0, {"ARROW1\0\0", 8}, "Arrow", kRows},
    {0, "\xff\xff\xff\xff", "an Arrow stream", kRows},
    {0, "\x89HDF\r\n", "HDF5", kRows},
    {0, {"SQLite format 3\0", 16}, "an SQLite database", kRows},
    {0, "PK\x03\x04", "a zip archive", kUnpack},
    {0, "7z\xbc\xaf\x27\x1c", "a 7z archive", kUnpack},
    {0, "Rar!\x1a\x07", "a rar archive", kUnpack},
    {257, "ustar", "a tar archive", kUnpack},
    {0, "\x02\x21\x4c\x18", "compressed in lz4's legacy format", kAgain},
    {0, {"\xff\x06\0\0sNaPpY", 10}, "compressed by snappy", kAgain},
    {0, "LZIP\x01", "compressed by lzip", kAgain},
    {0, "\x1f\x9d", "compressed by compress", kAgain},
    {0, "%PDF-", "PDF", kText},
    {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document", kText},
    {0, "\x89PNG\r\n", "an image", "leave it out"},
    {0, "\xff\xd8\xff", "an image", "leave it out"},
};

}  // namespace

std::string why_not_read(std::string_view beginning) {
  for (const Kind& kind : kKinds)
    if (kind.at <= beginning.size() && beginning.substr(kind.at).starts_with(kind.mark))
      return fmt::format("is {}, which is not read: {}", kind.name, kind.advice);
  return "";
}

}  // namespace weft
