// Rows of token ids, one JSON object a line: what objectives over pairs of completions read
// (docs/formats/id_rows.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace weft {

// Of every row the prompt and its completions, in memory. Immutable; any thread may read.
class IdRows {
 public:
  struct Spec {
    std::filesystem::path file;
    std::vector<std::string> completions;  // the names of the fields that hold them: "chosen", "rejected"
    int64_t vocab_size = 0;
    int64_t seq_length = 0;  // the most tokens of a prompt with one of its completions
  };
  // Reads and judges every row. Throws FileError with file, line, field and what to do: a file that cannot be read or
  // has no rows, a line that is no JSON object, a field that is missing or no list of ids of the vocabulary, an empty
  // prompt or completion, too many tokens.
  explicit IdRows(const Spec& spec);

  int64_t size() const { return int64_t(ends_.size()) / parts_; }
  std::span<const int32_t> prompt(int64_t row) const { return part(row, 0); }
  std::span<const int32_t> completion(int64_t row, int64_t which) const { return part(row, 1 + which); }
  int64_t num_completions() const { return parts_ - 1; }  // of a row
  const std::filesystem::path& file() const { return file_; }
  const std::string& fingerprint() const { return fingerprint_; }  // changes when a byte of the file does

 private:
  std::span<const int32_t> part(int64_t row, int64_t which) const;

  std::filesystem::path file_;
  int64_t parts_;  // of a row: prompt and completions
  std::string fingerprint_;
  std::vector<int32_t> ids_;   // of all rows, part by part
  std::vector<int64_t> ends_;  // [row][part] in ids_
};

}  // namespace weft
