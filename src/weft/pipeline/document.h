// A document on its way through the pipeline, and its line in a shard (docs/formats/pipeline.md).
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace weft {

class JsonFields;

// Which document: the shard of the read stage in which it first stood, and its place there. Kept by all later stages.
struct DocumentId {
  uint32_t shard = 0, place = 0;
  uint64_t number() const { return uint64_t(shard) << 32 | place; }
  static DocumentId of_number(uint64_t n) { return {uint32_t(n >> 32), uint32_t(n)}; }
  std::string text() const;  // "12.345"
  bool operator==(const DocumentId&) const = default;
};

// "id" of an object, as text() writes it. Throws FileError.
DocumentId parse_document_id(const JsonFields& fields);

// Where it was read: bytes [begin, end) of the file as it is when decompressed, which are its row `row` (from 1).
struct Origin {
  std::string file;
  int64_t row = 0, begin = 0, end = 0;
};

struct Document {
  DocumentId id;
  std::string source;  // the name of its [[source]]
  Origin origin;
  std::string url;                                 // empty: none is known
  std::string text;                                // UTF-8; of a conversation, what its messages say
  std::string conversation;                        // JSON for read_conversation(); empty: it is a text
  nlohmann::json meta = nlohmann::json::object();  // of the row, and what stages found
};

// One line of JSON with its line feed.
std::string to_line(const Document& document);
// The reverse. Throws FileError, beginning with `where`.
Document document_of_line(std::string_view line, const std::string& where);

// Collects the lines of a shard, a file of documents between stages, and writes it whole or not at all.
class ShardWriter {
 public:
  void add(const Document& document) { lines_ += to_line(document); }
  void add_line(std::string_view json) { (lines_ += json) += '\n'; }
  bool empty() const { return lines_.empty(); }
  // Compressed where the name ends with .zst. Returns the file's hash. Throws FileError.
  std::string commit(const std::filesystem::path& file) const;

 private:
  std::string lines_;
};

// Each document of a shard, in order. Throws FileError that names the line.
void for_each_in_shard(const std::filesystem::path& file, const std::function<void(Document&&)>& take);
// Each line of such a file.
void for_each_line_of(const std::filesystem::path& file,
                      const std::function<void(std::string_view line, int64_t number)>& take);

}  // namespace weft
