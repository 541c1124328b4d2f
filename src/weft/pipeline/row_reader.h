// Cuts files into rows, without parsing them. Hostile files give broken rows, not failures.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/pipeline/byte_reader.h"

namespace weft {

// Files that hold no rows as weft reads them.

// A file that cannot be read as a whole: another kind, or CSV without the text's column. The read stage puts it aside
// and goes on.
class UnreadFile : public FileError {
 public:
  UnreadFile(const std::string& file, const std::string& why) : FileError(file + ": " + why), why_(why) {}
  const std::string& why() const { return why_; }  // "is Parquet, ...": what comes after the file's name

 private:
  std::string why_;
};

// By the first kKindBytes bytes, decompressed: what the file is, and what to do with it; empty: it may be text.
std::string why_not_read(std::string_view beginning);
inline constexpr size_t kKindBytes = 512;

struct Row {
  int64_t number = 0;          // from 1
  int64_t begin = 0, end = 0;  // in the decompressed file
  std::string bytes;           // of a broken row: its beginning
  std::string broken;          // why it is; empty: it is not
};

// One file's rows, in order; for one thread.
class RowReader {
 public:
  virtual ~RowReader() = default;
  // False: there is no more. A file that cannot be read to its end gives a broken row last.
  virtual bool next(Row& row) = 0;
  virtual int64_t bytes_in() const { return input_.bytes_in(); }  // of the file itself
  // Once there are no more: why the file could not be read to its end ("cut short: ..."); empty: it could.
  virtual const std::string& failure() const { return input_.failure(); }

 protected:
  RowReader(Input input, int64_t max_row_bytes) : input_(std::move(input)), max_bytes_(size_t(max_row_bytes)) {}
  // The next `size` bytes become the row.
  bool take(Row& row, size_t size);
  // Makes a broken row of the input up to `mark`, or to the end if there is none. The last `kept` bytes of the mark
  // belong to the next row.
  bool put_aside(Row& row, const std::string& why, std::string_view mark, size_t kept = 0);
  // At the end of the input: a last broken row where the file could not be read, else false.
  bool finish(Row& row);

  Input input_;
  size_t max_bytes_;
  int64_t number_ = 0;  // of the last row; empty ones that are passed over count

 private:
  bool told_ = false;
};

// Rows end with `separator`, which belongs to none; with an empty one, all of the file is one row. A line feed in it
// stands for \r\n too, unless it says \r itself. Empty rows are left out. A byte order mark at the beginning is
// skipped.
std::unique_ptr<RowReader> read_separated(Input input, const std::string& separator, int64_t max_row_bytes);
// Records of RFC 4180, with their quotes; the first is the header. A quote that is never closed costs its line.
std::unique_ptr<RowReader> read_csv(Input input, int64_t max_row_bytes);
// JSON: a value a line, or the elements of lists ("[{...}, {...}]") and objects one after the other, however their
// lines end. A file that is one object, with none of `row_keys` but with a list of objects in it, gives the first such
// list. A broken element also loses the text up to the next element that begins like those before it.
std::unique_ptr<RowReader> read_json(Input input, const std::vector<std::string>& row_keys, int64_t max_row_bytes);
// Whether read_json would find a value a line.
bool is_json_lines(Input& input, const std::vector<std::string>& row_keys, int64_t max_row_bytes);
// Records of a WARC file, with their headers.
std::unique_ptr<RowReader> read_warc(Input input, int64_t max_row_bytes);
// Rows of a Parquet file as JSON, without white space; `begin` and `end` are as if they stood in a file of JSON lines.
// A row group that cannot be read to its end gives a broken row for what is missing. Throws FileError where the file
// cannot be opened, UnreadFile where it is no Parquet or one that is not read, NotBuilt.
std::unique_ptr<RowReader> read_parquet(const std::string& path, int64_t max_row_bytes, ExpansionLimit limit);
// Stands for an unread file: one broken row, with the reason ("is Parquet, ...") as its failure.
std::unique_ptr<RowReader> read_nothing(const std::string& why);

}  // namespace weft
