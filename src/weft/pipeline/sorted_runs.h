// Sorting of more records than there is memory for: sorted files, merged.
#pragma once
#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

namespace weft {

// A key and the document that has it. Ordered by the fields in this order.
struct KeyRecord {
  uint64_t high = 0, low = 0;  // the key
  uint64_t document = 0;       // DocumentId::number()
  uint64_t extra = 0;
  auto operator<=>(const KeyRecord&) const = default;
  bool same_key(const KeyRecord& o) const { return high == o.high && low == o.low; }
};

// Sorts and writes them, whole or not at all.
void write_run(const std::filesystem::path& file, std::vector<KeyRecord> records);

struct RunMergeOptions {
  size_t fan_in = 256;                             // files that are open at once
  std::function<void(int64_t records)> look = {};  // may be empty; told of each 65,536 records, and may throw to stop
};

// Hands over all records of sorted files, in order. Memory: 64 KiB for each of up to `fan_in` files at once; of more,
// some are merged to files in `scratch` before. Throws FileError.
void merge_runs(std::vector<std::filesystem::path> files, const std::filesystem::path& scratch,
                const std::function<void(const KeyRecord&)>& take, const RunMergeOptions& options = {});

// Any number of records, sorted into one file at the end; 128 MiB of them in memory.
class RecordSorter {
 public:
  RecordSorter(std::filesystem::path scratch, std::string name)
      : scratch_(std::move(scratch)), name_(std::move(name)) {}
  void add(const KeyRecord& record);
  // `look` as in RunMergeOptions.
  void finish(const std::filesystem::path& file, const std::function<void(int64_t records)>& look = {});

 private:
  void spill();
  std::filesystem::path scratch_;
  std::string name_;
  std::vector<KeyRecord> records_;
  std::vector<std::filesystem::path> runs_;
};

}  // namespace weft
