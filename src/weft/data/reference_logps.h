// What a reference makes of the completions of rows: minus the log-probability of each of their tokens, in a file
// beside the rows (docs/formats/reference_logps.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "weft/base/durable_file.h"
#include "weft/base/hashing.h"
#include "weft/base/mapped_file.h"
#include "weft/data/id_rows.h"

namespace weft {

struct ReferenceLogpsSpec {
  std::string key;          // hash of all that the numbers depend on
  int64_t tokens = 0;       // of all completions
  int64_t value_bytes = 4;  // of a number: 4 (f32) or 8 (f64)
  static constexpr int64_t kHeaderBytes = 1024, kHashBytes = 32;
  int64_t file_bytes() const { return kHeaderBytes + tokens * value_bytes + kHashBytes; }
  bool operator==(const ReferenceLogpsSpec&) const = default;
};

// Where the numbers of completions lie in such a file, one behind the other.
class CompletionPlaces {
 public:
  explicit CompletionPlaces(const std::vector<int64_t>& tokens);  // of each completion
  // Of all rows, those of a row next to each other.
  explicit CompletionPlaces(const IdRows& rows);
  int64_t size() const { return int64_t(ends_.size()); }  // completions
  int64_t tokens() const { return ends_.back(); }
  int64_t first(int64_t completion) const { return completion == 0 ? 0 : ends_[size_t(completion - 1)]; }
  int64_t end(int64_t completion) const { return ends_[size_t(completion)]; }

 private:
  std::vector<int64_t> ends_;
};

// ROWS.KEY.ref: the file beside `rows`, named by the first digits of the key.
std::filesystem::path reference_logps_path(const std::filesystem::path& rows, const std::string& key);

// Reads a file where it lies. Immutable; any thread may read.
class ReferenceLogps {
 public:
  // Throws FileError, with the path and what to do, where it is no such file, damaged, or of something else.
  ReferenceLogps(const std::filesystem::path& file, const ReferenceLogpsSpec& expected, CompletionPlaces places);
  const std::filesystem::path& path() const { return file_.path(); }
  // One number for each token of a completion, by its number among the places.
  void read(int64_t completion, std::span<double> losses) const;

 private:
  MappedFile file_;
  const ReferenceLogpsSpec spec_;
  const CompletionPlaces places_;
};

// Writes such a file from front to back: whole or not at all. Throws FileError.
class ReferenceLogpsWriter {
 public:
  ReferenceLogpsWriter(const std::filesystem::path& file, const ReferenceLogpsSpec& spec);
  void write(std::span<const double> losses);  // which are numbers of the spec's type
  void commit();                               // once, when all are written

 private:
  const ReferenceLogpsSpec spec_;
  DurableFile file_;
  Hasher hash_;
  int64_t written_ = 0;
};

}  // namespace weft
