// Files that hold no rows as weft reads them.
#pragma once
#include <string>
#include <string_view>

#include "weft/base/error.h"

namespace weft {

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

}  // namespace weft
