// Rows of Parquet files, as JSON: the lines that the same rows would be in a file of JSON lines.
#include <algorithm>
#include <map>
#include <utility>

#include "weft/base/json.h"
#include "weft/base/not_built.h"
#include "weft/pipeline/json_row.h"
#include "weft/pipeline/parquet_column.h"
#include "weft/pipeline/parquet_values.h"
#include "weft/pipeline/row_reader.h"

namespace weft {
namespace {

constexpr std::string_view kParquetMagic = "PAR1", kEncrypted = "PARE";
constexpr int64_t kEnd = 8, kMostFooter = 256 << 20;  // its size and the magic bytes stand behind the footer

// The columns of a row group, put together again row by row.
//   Melnik et al. 2010, "Dremel", section 4.3
class Assembly {
 public:
  Assembly(ParquetBytes& file, const ParquetFooter& footer, const ParquetGroup& group, int64_t data_end) : file_(file) {
    for (size_t i = 0; i < footer.leaves.size(); ++i)
      columns_.emplace_back(file, footer.leaves[i], group.chunks[i], data_end);
  }

  // The next row, as long as `json` is not longer than `most` bytes; the rest of a longer one is passed over.
  void write_row(const ParquetNode& root, size_t most, std::string& json) {
    json_ = &json;
    most_ = most;
    json.clear();
    require_repetition(root, 0);
    write(root);
    tell_made();
  }
  void require_end() {
    for (ParquetColumn& column : columns_) {
      at_ = &column;
      if (!column.at_end()) throw Error("has more entries than rows");
    }
  }
  // The column at which an error was found.
  const std::string& where() const { return at_ != nullptr ? at_->leaf().path : columns_.front().leaf().path; }

 private:
  ParquetColumn& column(size_t leaf) {
    at_ = &columns_[leaf];
    return *at_;
  }
  void write(const ParquetNode& node) {
    if (column(node.first_leaf).definition() < node.definition) {
      put("null");
      return pass(node);
    }
    switch (node.kind) {
      case ParquetNode::Kind::kLeaf:
        return write_value(column(node.first_leaf));
      case ParquetNode::Kind::kObject:
        return write_object(node);
      default:
        return write_items(node);
    }
  }
  void write_object(const ParquetNode& node) {
    put("{");
    for (const ParquetNode& child : node.children) {
      if (&child != &node.children.front()) put(",");
      if (fits()) append_json_string(*json_, child.name);
      put(":");
      write(child);
    }
    put("}");
  }
  // Elements of a list, entries of a map.
  void write_items(const ParquetNode& node) {
    const bool map = node.kind == ParquetNode::Kind::kMap;
    put(map ? "{" : "[");
    if (column(node.first_leaf).definition() < node.item_definition) {
      pass(node);
    } else {
      for (bool another = true; another;) {
        if (map) write_key(node.children[0]);
        write(node.children.back());
        ParquetColumn& first = column(node.first_leaf);
        another = !first.at_end() && first.repetition() >= node.repetition;
        if (!another) break;
        require_repetition(node, node.repetition);
        put(",");
      }
    }
    put(map ? "}" : "]");
  }
  void write_key(const ParquetNode& node) {
    const size_t begin = json_->size();
    write(node);
    if (fits() && (*json_)[begin] != '"') {
      json_->insert(begin, 1, '"');
      put("\"");
    }
    put(":");
  }
  void write_value(ParquetColumn& column) {
    const std::string_view value = column.value();
    if (fits()) append_parquet_value(*json_, column.leaf(), value);
    next(column, value.size());
  }
  // An entry of each column, which says that there is nothing.
  void pass(const ParquetNode& node) {
    for (size_t i = node.first_leaf; i < node.end_leaf; ++i) next(column(i), 0);
  }
  // An entry counts as a byte beside its value, in rows that are too long as well: one run may stand for endless ones.
  // Names and what else JSON writes do not count: a wide table of nulls is no bomb.
  void next(ParquetColumn& column, size_t bytes) {
    constexpr int64_t kAtOnce = 1 << 16;
    column.next();
    if ((made_ += int64_t(bytes) + 1) >= kAtOnce) tell_made();
  }
  void tell_made() { file_.made_row(std::exchange(made_, 0)); }
  // That all columns of a part go on with it in the same way.
  void require_repetition(const ParquetNode& node, int repetition) {
    for (size_t i = node.first_leaf; i < node.end_leaf; ++i)
      if (column(i).repetition() != repetition) throw Error("does not fit the others");
  }
  bool fits() const { return json_->size() <= most_; }
  void put(std::string_view text) {
    if (fits()) *json_ += text;
  }

  ParquetBytes& file_;
  std::vector<ParquetColumn> columns_;
  ParquetColumn* at_ = nullptr;
  std::string* json_ = nullptr;
  size_t most_ = 0;
  int64_t made_ = 0;  // that the file has not counted yet
};

class ParquetReader final : public RowReader {
 public:
  ParquetReader(const std::string& path, int64_t max_row_bytes, ExpansionLimit limit)
      : RowReader(Input(open_memory_reader({}, {})), max_row_bytes), file_(path, limit) {
    try {
      read_footer();
    } catch (const FileError&) { throw; } catch (const NotBuilt&) {
      throw;
    } catch (const Error& e) { throw UnreadFile(path, fmt::format("is Parquet that cannot be read: {}", e.what())); }
  }

  bool next(Row& row) override {
    for (; group_ < footer_.groups.size(); ++group_, row_in_group_ = 0, assembly_.reset()) {
      const ParquetGroup& group = footer_.groups[group_];
      try {
        if (!assembly_) assembly_.emplace(file_, footer_, group, data_end_);
        if (row_in_group_ < group.rows) return read_row(row);
        assembly_->require_end();
      } catch (const FileError&) { throw; } catch (const NotBuilt&) {
        throw;
      } catch (const Error& e) {
        put_aside_rest(row, group, e.what());
        return true;
      }
    }
    return false;
  }
  int64_t bytes_in() const override { return group_ < footer_.groups.size() ? file_.bytes_in() : file_.size(); }
  const std::string& failure() const override { return failure_; }

 private:
  void read_footer() {
    std::string piece;
    const int64_t size = file_.size();
    if (size < int64_t(kParquetMagic.size()) + kEnd) throw Error("it is cut short");
    file_.read(0, 4, piece);
    if (piece == kEncrypted) throw Error("it is encrypted");
    if (piece != kParquetMagic) throw Error("it does not begin with PAR1");
    file_.read(size - kEnd, kEnd, piece);
    if (piece.ends_with(kEncrypted)) throw Error("it is encrypted");
    if (!piece.ends_with(kParquetMagic))
      throw Error("it is cut short: what describes its columns, at its end, is missing");
    const auto bytes = int64_t(little_endian(std::string_view(piece).substr(0, 4)));
    if (bytes > std::min(kMostFooter, size - kEnd - int64_t(kParquetMagic.size())))
      throw Error(fmt::format("what describes its columns has {} bytes", bytes));
    data_end_ = size - kEnd - bytes;
    file_.read(data_end_, bytes, piece);
    footer_ = parse_parquet_footer(piece, data_end_);
    for (const ParquetGroup& group : footer_.groups)
      for (const ParquetChunk& chunk : group.chunks) need_codec(chunk.codec);
  }
  // Throws NotBuilt, before the work.
  void need_codec(ParquetCodec codec) {
    if (std::exchange(needed_[codec], true)) return;
    std::string out(1, '\0');
    constexpr std::string_view kEmpty("\0", 1);
    if (codec == ParquetCodec::kGzip) make_gzip_codec(file_.path());
    if (codec == ParquetCodec::kZstd) make_zstd_codec(file_.path());
    if (codec == ParquetCodec::kSnappy) decompress_snappy(kEmpty, std::span(out).first(0), file_.path());
    if (codec == ParquetCodec::kLz4 || codec == ParquetCodec::kLz4Hadoop)
      decompress_lz4(kEmpty, std::span(out).first(0), file_.path());
  }

  bool read_row(Row& row) {
    assembly_->write_row(footer_.root, max_bytes_, row.bytes);
    ++row_in_group_;
    row.number = ++number_;
    row.begin = bytes_;
    if (row.bytes.size() > max_bytes_) {
      constexpr size_t kShown = 1000;
      row.bytes = row.bytes.substr(0, kShown);  // gives up the memory of the rest: a batch may have many such rows
      row.broken = fmt::format("longer than {} bytes (read.max_row_mb)", max_bytes_);
    } else {
      row.broken.clear();
    }
    row.end = bytes_ += int64_t(row.bytes.size()) + 1;
    return true;
  }
  void put_aside_rest(Row& row, const ParquetGroup& group, const std::string& why) {
    const int64_t first = number_ + 1;
    const int64_t lost = group.rows - std::exchange(row_in_group_, 0);
    const std::string place =
        fmt::format("row group {}, column {}: {}", group_ + 1, assembly_ ? in_quotes(assembly_->where()) : "", why);
    row = {.number = first,
           .begin = bytes_,
           .end = bytes_,
           .bytes = "",
           .broken = fmt::format("{}; {} rows from here on are left out", place, lost)};
    number_ = std::max(number_ + lost, first);
    if (failure_.empty()) failure_ = row.broken;
    assembly_.reset();
    ++group_;
  }

  ParquetBytes file_;
  ParquetFooter footer_;
  int64_t data_end_ = 0, bytes_ = 0, row_in_group_ = 0;
  size_t group_ = 0;
  std::optional<Assembly> assembly_;
  std::map<ParquetCodec, bool> needed_;
  std::string failure_;
};

}  // namespace

std::unique_ptr<RowReader> read_parquet(const std::string& path, int64_t max_row_bytes, ExpansionLimit limit) {
  return std::make_unique<ParquetReader>(path, max_row_bytes, limit);
}

}  // namespace weft
