// Hand-made Parquet files with one text column, "text", for contents that no writer makes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::testing {

class TinyParquet {
 public:
  TinyParquet& plain(const std::vector<std::string>& texts) {
    std::string page;
    for (const std::string& text : texts) page += sized(text);
    entries_ = rows_ = int64_t(texts.size());
    return this->page(page);
  }
  // The same text `count` times: a dictionary of it, and one run of its number.
  TinyParquet& run_of(const std::string& text, int64_t count) {
    const std::string value = sized(text);
    pages_ = page_header(2, value.size(), value.size(),
                         field(7, 12) + field(1, 5) + zigzag(1) + field_by(1, 5) + zigzag(0) + '\0') +
             value;
    dictionary_ = true;
    entries_ = rows_ = count;
    encoding_ = 8;
    const std::string run = '\1' + varint(uint64_t(count) << 1) + '\0';
    return page(run);
  }
  // The same as one row, whose list has the text `count` times.
  TinyParquet& list_of(const std::string& text, int64_t count) {
    run_of(text, count);
    repeated_ = true;
    const std::string repetitions = varint(2) + '\0' + varint(uint64_t(count - 1) << 1) + '\1',
                      definitions = varint(uint64_t(count) << 1) + '\1';
    return rows(1).page(sized(repetitions) + sized(definitions) + page_);
  }
  TinyParquet& page(const std::string& bytes) { return page_ = bytes, *this; }
  TinyParquet& rows(int64_t n) { return rows_ = n, *this; }
  TinyParquet& entries(int64_t n) { return entries_ = n, *this; }
  TinyParquet& encoding(int64_t n) { return encoding_ = n, *this; }
  TinyParquet& begin(int64_t n) { return begin_ = n, *this; }
  TinyParquet& groups(int n) { return groups_ = n, *this; }
  // The sizes that the page claims.
  TinyParquet& sizes(int64_t unpacked, int64_t packed) { return unpacked_ = unpacked, packed_ = packed, *this; }

  std::string bytes() const {
    const std::string data = field(5, 12) + field(1, 5) + zigzag(entries_) + field_by(1, 5) + zigzag(encoding_) +
                             field_by(1, 5) + zigzag(3) + field_by(1, 5) + zigzag(3) + '\0';
    const auto size = [&](int64_t said) { return said == 0 ? page_.size() : size_t(said); };
    std::string file = "PAR1" + pages_;
    const int64_t at = begin_ > 0 ? begin_ : int64_t(file.size());
    file += page_header(0, size(unpacked_), size(packed_), data) + page_;
    std::string chunk = field(1, 5) + zigzag(6) + field_by(2, 9) + list(1, 8) + sized_varint("text") + field_by(1, 5) +
                        zigzag(0) + field_by(1, 6) + zigzag(entries_) + field_by(4, 6) + zigzag(at);
    if (dictionary_) chunk += field_by(2, 6) + zigzag(4);
    const std::string column = field(3, 12) + chunk + '\0' + '\0';
    const std::string group = field(1, 9) + list(1, 12) + column + field_by(2, 6) + zigzag(rows_) + '\0';
    const std::string root = field(4, 8) + sized_varint("schema") + field_by(1, 5) + zigzag(1) + '\0';
    const std::string leaf = field(1, 5) + zigzag(6) + field_by(2, 5) + zigzag(repeated_ ? 2 : 0) + field_by(1, 8) +
                             sized_varint("text") + field_by(2, 5) + zigzag(0) + '\0';
    std::string footer = field(1, 5) + zigzag(1) + field_by(1, 9) + list(2, 12) + root + leaf + field_by(1, 6) +
                         zigzag(rows_) + field_by(1, 9) + list(groups_, 12);
    for (int i = 0; i < groups_; ++i) footer += group;
    footer += '\0';
    return file + footer + little_endian(footer.size()) + "PAR1";
  }

 private:
  // The first field of a struct, and one that many numbers behind the one before it.
  static std::string field(int id, int type) { return {char(id << 4 | type)}; }
  static std::string field_by(int step, int type) { return field(step, type); }
  static std::string list(int size, int type) { return {char(size << 4 | type)}; }
  static std::string varint(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += char(value | 0x80);
    return bytes + char(value);
  }
  static std::string zigzag(int64_t value) { return varint(uint64_t(value) << 1 ^ uint64_t(value >> 63)); }
  static std::string sized_varint(const std::string& text) { return varint(text.size()) + text; }
  static std::string little_endian(size_t value) {
    return {char(value), char(value >> 8), char(value >> 16), char(value >> 24)};
  }
  static std::string sized(const std::string& text) { return little_endian(text.size()) + text; }
  static std::string page_header(int64_t type, size_t unpacked, size_t packed, const std::string& more) {
    return field(1, 5) + zigzag(type) + field_by(1, 5) + zigzag(int64_t(unpacked)) + field_by(1, 5) +
           zigzag(int64_t(packed)) + step_to(more) + '\0';
  }
  // Fields 5 and 7 follow field 3.
  static std::string step_to(const std::string& more) {
    return char(((more[0] >> 4) - 3) << 4 | (more[0] & 15)) + more.substr(1);
  }

  std::string pages_, page_;
  int64_t rows_ = 1, entries_ = 1, encoding_ = 0, begin_ = 0, unpacked_ = 0, packed_ = 0;
  int groups_ = 1;
  bool dictionary_ = false, repeated_ = false;
};

}  // namespace weft::testing
