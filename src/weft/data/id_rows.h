// Rows of token ids, or of texts that become them: what objectives over completions read (docs/formats/id_rows.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/error.h"

namespace weft {

class JsonFields;
struct JsonlRow;

// A row with an empty prompt or completion.
class EmptyPartError : public FileError {
 public:
  using FileError::FileError;
};

// A row of texts, as token ids.
struct EncodedRow {
  std::vector<int32_t> prompt;
  std::vector<std::vector<int32_t>> completions;
};

// Readers of other files and texts, which folders above this one supply. Both functions for files may be empty.
struct RowFiles {
  // Whether a file is no JSON lines, but read by for_each, which hands over its rows in order ("FILE: row 3").
  std::function<bool(const std::filesystem::path& file)> reads = {};
  std::function<void(const std::filesystem::path& file, const std::function<void(const JsonlRow&)>& take)> for_each =
      {};
  // The tokens of a row of texts. Throws FileError, beginning with its place, EmptyPartError where it is that. Empty:
  // all rows are of ids.
  std::function<EncodedRow(const JsonlRow& row)> encode = {};
};

// The prompts of all rows, their completions and what is known of them, in memory. Immutable; any thread may read.
class IdRows {
 public:
  struct Spec {
    std::filesystem::path file;
    // The names of fields: of the completions, "chosen", "rejected"; of a number of each row, or empty: there is none;
    // of lists of a number for each token of the only completion.
    std::vector<std::string> completions;
    std::string number = {};
    struct TokenNumbers {
      std::string name;
      bool is_logp = true;  // of a probability
    };
    std::vector<TokenNumbers> token_numbers = {};
    bool number_is_flag = false;    // the number is true (1) or false (0)
    std::string other_number = {};  // another name of it, where a row has none of that name
    int64_t vocab_size = 0;
    int64_t seq_length = 0;   // the most tokens of a prompt with one of its completions
    int64_t most_tokens = 0;  // of a completion; 0: as many as fit
    RowFiles files = {};
  };
  // Reads and judges every row. Throws FileError with file, line, field and what to do: a file that cannot be read or
  // has no rows, a line that is no JSON object, a field that is missing or no list of ids of the vocabulary (or of
  // numbers, one for each token), an empty prompt or completion (with how many rows have such), too many tokens, rows
  // of texts among rows of ids.
  explicit IdRows(const Spec& spec);

  int64_t size() const { return int64_t(ends_.size()) / parts_; }
  std::span<const int32_t> prompt(int64_t row) const { return part(row, 0); }
  std::span<const int32_t> completion(int64_t row, int64_t which) const { return part(row, 1 + which); }
  int64_t num_completions() const { return parts_ - 1; }  // of a row
  double number(int64_t row) const { return numbers_[size_t(row)]; }
  std::span<const double> token_numbers(int64_t row, size_t which = 0) const;
  std::string place_of(int64_t row) const;  // in the file: "line 3"
  bool are_texts() const { return are_texts_; }
  const std::filesystem::path& file() const { return file_; }
  // Changes when a byte of the file does; of texts, also when an id does.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  void add(const JsonlRow& row, const Spec& spec);
  void add_ids(const JsonFields& row, const Spec& spec);
  void add_texts(const JsonlRow& row, const Spec& spec);
  void check_lengths(const Spec& spec) const;
  void add_token_numbers(const JsonFields& row, const Spec& spec);
  void add_token_numbers(const JsonFields& row, const Spec& spec, size_t which);
  std::span<const int32_t> part(int64_t row, int64_t which) const;

  std::filesystem::path file_;
  int64_t parts_;  // of a row: prompt and completions
  bool are_texts_ = false, are_lines_ = true;
  std::string fingerprint_;
  std::vector<int32_t> ids_;   // of all rows, part by part
  std::vector<int64_t> ends_;  // [row][part] in ids_
  std::vector<int64_t> lines_;
  std::vector<double> numbers_;
  std::vector<std::vector<double>> token_numbers_;  // [list], of all rows
  std::vector<int64_t> token_ends_;                 // [row] in each
};

}  // namespace weft
