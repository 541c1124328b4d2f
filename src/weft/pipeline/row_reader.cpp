#include "weft/pipeline/row_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "weft/pipeline/warc_page.h"

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

namespace {

constexpr size_t kShown = 1000;  // bytes of a broken row that are kept
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

class SeparatedReader final : public RowReader {
 public:
  SeparatedReader(Input input, std::string separator, int64_t max_row_bytes)
      : RowReader(std::move(input), max_row_bytes), separator_(std::move(separator)) {}

  bool next(Row& row) override {
    if (input_.offset() == 0 && input_.peek(3).starts_with(kByteOrderMark)) input_.skip(3);
    for (;;) {
      if (input_.peek(1).empty()) return finish(row);
      const Mark mark = find_separator();
      const size_t size = mark.begin == std::string::npos ? input_.peek(max_bytes_ + 1).size() : mark.begin;
      if (size > max_bytes_)
        return put_aside(row, fmt::format("longer than {} bytes (read.max_row_mb)", max_bytes_), mark_after_long_row());
      if (mark.begin == std::string::npos && !input_.failure().empty())
        return put_aside(row, "the file is " + input_.failure(), "");
      if (size > 0) {
        take(row, size);
        input_.skip(mark.size);
        return true;
      }
      input_.skip(mark.size);
      ++number_;  // an empty row is one, so that rows of JSONL have the numbers of their lines
    }
  }

 private:
  struct Mark {
    size_t begin = std::string::npos, size = 0;
  };

  Mark find_separator() {
    if (separator_.empty()) return {};
    const size_t line_feed = separator_.find('\n');
    if (line_feed == std::string::npos || separator_.find('\r') != std::string::npos) {
      const size_t at = input_.find(separator_, 0, max_bytes_);
      return {at, at == std::string::npos ? 0 : separator_.size()};
    }
    const std::string_view before = std::string_view(separator_).substr(0, line_feed);
    for (size_t from = 0; from <= max_bytes_;) {
      const size_t at = input_.find("\n", from, max_bytes_);
      if (at == std::string::npos) return {};
      const std::string_view here = input_.peek(at + 2 * separator_.size());
      const size_t cr = at > 0 && here[at - 1] == '\r' ? 1 : 0;
      if (here.substr(0, at - cr).ends_with(before)) {
        const size_t begin = at - cr - before.size();
        if (const size_t end = end_of_separator(here, begin); end > 0) return {begin, end - begin};
      }
      from = at + 1;
    }
    return {};
  }
  // Where the separator that begins here ends, with any of its lines ended by \r\n; 0: there is none.
  size_t end_of_separator(std::string_view here, size_t at) const {
    for (const char c : separator_) {
      if (c == '\n' && at < here.size() && here[at] == '\r') ++at;
      if (at >= here.size() || here[at] != c) return 0;
      ++at;
    }
    return at;
  }
  // The separator as this file writes it, if one can tell by the row.
  std::string mark_after_long_row() {
    const std::string_view here = input_.peek(1);
    const size_t at = here.find('\n');
    if (at == std::string_view::npos || at == 0 || here[at - 1] != '\r') return separator_;
    std::string mark;
    for (const char c : separator_) mark += c == '\n' ? "\r\n" : std::string(1, c);
    return mark;
  }

  std::string separator_;
};

class CsvReader final : public RowReader {
 public:
  using RowReader::RowReader;
  CsvReader(Input input, int64_t max_row_bytes) : RowReader(std::move(input), max_row_bytes) {}

  bool next(Row& row) override {
    if (input_.offset() == 0 && input_.peek(3).starts_with(kByteOrderMark)) input_.skip(3);
    skip_empty_lines();
    if (input_.peek(1).empty()) return finish(row);
    if (unclosed_ >= kMostUnclosed) return put_aside(row, "too many quotes that are not closed: the rest is left", "");
    const Record record = find_record();
    line_end_due_ = record.end;
    if (record.end) return take(row, record.size);
    unclosed_ += !record.broken;
    const std::string from =
        fmt::format("; the quote is in row {} at byte {}", number_ + 1, input_.offset() + int64_t(record.quote));
    return put_aside(row,
                     record.broken               ? "text after a closing quote" + from
                     : !input_.failure().empty() ? "the file is " + input_.failure()
                     : record.quote == kNoQuote  ? fmt::format("longer than {} bytes (read.max_row_mb)", max_bytes_)
                                                 : "a quote that is not closed, or a row that is too long" + from,
                     "\n");
  }

 private:
  static constexpr int kMostUnclosed = 100;  // each may cost a look at all that is allowed for a row

  struct Record {
    bool end = false;     // it ends after `size` bytes
    bool broken = false;  // a quote neither doubled nor at the end of its field: it, or one before it, is a slip
    size_t size = 0;
    size_t quote = kNoQuote;  // where the last field with quotes begins
  };
  static constexpr size_t kNoQuote = std::string::npos;

  void skip_empty_lines() {
    for (;;) {
      const std::string_view next = input_.peek(2);
      const size_t size = next.starts_with("\r\n") ? 2 : next.starts_with('\n') ? 1 : 0;
      if (size == 0) return;
      input_.skip(size);
      if (!std::exchange(line_end_due_, false)) ++number_;
    }
  }
  // Up to the line's end outside of quotes. A quote that is not closed is found at the next one, wherever text follows
  // that: so one slip costs few rows. Linear: where a look fails, all lines within but the first are rows of their own.
  Record find_record() {
    enum { kFieldStart, kPlain, kQuoted, kAfterQuote } state = kFieldStart;
    size_t quote = kNoQuote;
    for (size_t i = 0; i <= max_bytes_;) {
      const std::string_view here = input_.peek(i + 1);
      if (i >= here.size()) return {.end = state != kQuoted && input_.failure().empty(), .size = i, .quote = quote};
      for (; i < here.size() && i <= max_bytes_; ++i) {
        const char c = here[i];
        if (state == kQuoted) {
          if (c == '"') state = kAfterQuote;
          continue;
        }
        if (c == '\n') return {.end = true, .size = i > 0 && here[i - 1] == '\r' ? i - 1 : i};
        if (c == '"') {
          if (state == kFieldStart) quote = i;
          if (state != kPlain) state = kQuoted;
        } else if (c == ',') {
          state = kFieldStart;
        } else if (state == kAfterQuote && c != '\r') {
          return {.broken = true, .quote = quote};
        } else if (state == kFieldStart) {
          state = kPlain;
        }
      }
    }
    return {.quote = quote};
  }

  int unclosed_ = 0;
  bool line_end_due_ = false;  // of the row before: no empty row
};

class WarcReader final : public RowReader {
 public:
  WarcReader(Input input, int64_t max_row_bytes) : RowReader(std::move(input), max_row_bytes) {}

  bool next(Row& row) override {
    while (input_.peek(1).starts_with('\r') || input_.peek(1).starts_with('\n')) input_.skip(1);
    const std::string_view here = input_.peek(kMostHeader);
    if (here.empty()) return finish(row);
    if (!here.starts_with("WARC/")) return put_aside(row, "not a WARC record", kMark, kMark.size() - 1);
    const size_t head = header_size(here);
    if (head == 0) return put_aside(row, "a WARC record whose header does not end", kMark, kMark.size() - 1);
    const std::string length = header_value(here.substr(0, head), "content-length");
    uint64_t bytes = 0;
    const auto number = std::from_chars(length.data(), length.data() + length.size(), bytes);
    if (length.empty() || number.ec != std::errc() || number.ptr != length.data() + length.size())
      return put_aside(row, "a WARC record without a Content-Length", kMark, kMark.size() - 1);
    if (bytes > max_bytes_)
      return put_aside(row, fmt::format("longer than {} bytes (read.max_row_mb)", max_bytes_), kMark, kMark.size() - 1);
    if (input_.peek(head + bytes).size() < head + bytes)
      return put_aside(row,
                       input_.failure().empty() ? "a WARC record that is cut short" : "the file is " + input_.failure(),
                       kMark, kMark.size() - 1);
    return take(row, head + bytes);
  }

 private:
  static constexpr size_t kMostHeader = 1 << 16;
  static constexpr std::string_view kMark = "\nWARC/1.";
};

class NothingReader final : public RowReader {
 public:
  explicit NothingReader(std::string why) : RowReader(Input(open_memory_reader({}, {})), 0), why_(std::move(why)) {}

  bool next(Row& row) override {
    if (std::exchange(done_, true)) return false;
    row = {.number = ++number_, .begin = 0, .end = 0, .bytes = "", .broken = "the file " + why_};
    return true;
  }
  const std::string& failure() const override { return why_; }

 private:
  std::string why_;
  bool done_ = false;
};

}  // namespace

bool RowReader::take(Row& row, size_t size) {
  row.number = ++number_;
  row.begin = input_.offset();
  row.end = row.begin + int64_t(size);
  row.bytes = input_.peek(size).substr(0, size);
  row.broken.clear();
  input_.skip(size);
  return true;
}

bool RowReader::put_aside(Row& row, const std::string& why, std::string_view mark, size_t kept) {
  row.number = ++number_;
  row.begin = input_.offset();
  row.bytes = input_.peek(kShown).substr(0, kShown);
  row.broken = why;
  for (;;) {
    const std::string_view here = input_.peek(1 << 16);
    const size_t found = mark.empty() ? std::string_view::npos : here.find(mark);
    if (found != std::string_view::npos) {
      row.end = input_.offset() + int64_t(found);
      input_.skip(found + mark.size() - kept);
      return true;
    }
    const bool last = input_.peek(here.size() + 1).size() == here.size();
    const size_t keep = last ? 0 : std::min(here.size(), mark.empty() ? 0 : mark.size() - 1);
    input_.skip(here.size() - keep);
    if (last) break;
  }
  row.end = input_.offset();
  told_ = true;  // all that was left is in this row
  return true;
}

bool RowReader::finish(Row& row) {
  if (input_.failure().empty() || told_) return false;
  told_ = true;
  row = {.number = ++number_,
         .begin = input_.offset(),
         .end = input_.offset(),
         .bytes = "",
         .broken = "the file is " + input_.failure()};
  return true;
}

std::unique_ptr<RowReader> read_separated(Input input, const std::string& separator, int64_t max_row_bytes) {
  return std::make_unique<SeparatedReader>(std::move(input), separator, max_row_bytes);
}
std::unique_ptr<RowReader> read_csv(Input input, int64_t max_row_bytes) {
  return std::make_unique<CsvReader>(std::move(input), max_row_bytes);
}
std::unique_ptr<RowReader> read_warc(Input input, int64_t max_row_bytes) {
  return std::make_unique<WarcReader>(std::move(input), max_row_bytes);
}
std::unique_ptr<RowReader> read_nothing(const std::string& why) { return std::make_unique<NothingReader>(why); }

}  // namespace weft
