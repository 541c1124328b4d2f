#include "weft/pipeline/sorted_runs.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <queue>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBuffered = 2048, kInMemory = 4 << 20;  // records

std::string_view as_bytes(const KeyRecord& record) { return {reinterpret_cast<const char*>(&record), sizeof record}; }

class RunReader {
 public:
  explicit RunReader(const fs::path& file) : file_(file), in_(file, std::ios::binary) { refill(); }
  bool done() const { return at_ == buffer_.size(); }
  const KeyRecord& head() const { return buffer_[at_]; }
  void step() {
    if (++at_ == buffer_.size()) refill();
  }

 private:
  void refill() {
    buffer_.resize(kBuffered);
    at_ = 0;
    in_.read(reinterpret_cast<char*>(buffer_.data()), std::streamsize(kBuffered * sizeof(KeyRecord)));
    const auto bytes = size_t(in_.gcount());
    if (in_.bad() || (!in_ && !in_.eof()) || bytes % sizeof(KeyRecord) != 0)
      throw FileError(fmt::format("{}: cannot be read; remove its folder and run the stage again", file_.string()));
    buffer_.resize(bytes / sizeof(KeyRecord));
  }

  fs::path file_;
  std::ifstream in_;
  std::vector<KeyRecord> buffer_;
  size_t at_ = 0;
};

void merge_some(const std::vector<fs::path>& files, const std::function<void(const KeyRecord&)>& take,
                const std::function<void(int64_t)>& look) {
  constexpr int64_t kLook = 1 << 16;
  int64_t taken = 0;
  std::vector<std::unique_ptr<RunReader>> readers;
  for (const fs::path& file : files) readers.push_back(std::make_unique<RunReader>(file));
  const auto later = [&](size_t a, size_t b) { return readers[b]->head() < readers[a]->head(); };
  std::priority_queue<size_t, std::vector<size_t>, decltype(later)> order(later);
  for (size_t i = 0; i < readers.size(); ++i)
    if (!readers[i]->done()) order.push(i);
  while (!order.empty()) {
    const size_t first = order.top();
    order.pop();
    take(readers[first]->head());
    if (++taken % kLook == 0 && look) look(kLook);
    readers[first]->step();
    if (!readers[first]->done()) order.push(first);
  }
}

void merge_to_file(const std::vector<fs::path>& files, const fs::path& to, const std::function<void(int64_t)>& look) {
  DurableFile out(to, kOwnName);
  merge_some(
      files, [&](const KeyRecord& r) { out.write(as_bytes(r)); }, look);
  out.commit();
}

}  // namespace

void write_run(const fs::path& file, std::vector<KeyRecord> records) {
  std::sort(records.begin(), records.end());
  DurableFile out(file, kOwnName);
  for (const KeyRecord& r : records) out.write(as_bytes(r));
  out.commit();
}

void merge_runs(std::vector<fs::path> files, const fs::path& scratch, const std::function<void(const KeyRecord&)>& take,
                const RunMergeOptions& options) {
  for (int made = 0; files.size() > options.fan_in; ++made) {
    const auto middle = files.begin() + std::ptrdiff_t(options.fan_in);
    const fs::path merged = scratch / fmt::format("merged-{}", made);
    merge_to_file({files.begin(), middle}, merged, options.look);
    files.erase(files.begin(), middle);
    files.push_back(merged);
  }
  merge_some(files, take, options.look);
}

void RecordSorter::add(const KeyRecord& record) {
  records_.push_back(record);
  if (records_.size() >= kInMemory) spill();
}

void RecordSorter::spill() {
  runs_.push_back(scratch_ / fmt::format("{}-run-{}", name_, runs_.size()));
  write_run(runs_.back(), std::move(records_));
  records_.clear();
}

void RecordSorter::finish(const fs::path& file, const std::function<void(int64_t)>& look) {
  if (runs_.empty()) return write_run(file, std::move(records_));
  spill();
  DurableFile out(file, kOwnName);
  merge_runs(runs_, scratch_, [&](const KeyRecord& r) { out.write(as_bytes(r)); }, {.look = look});
  out.commit();
}

}  // namespace weft
