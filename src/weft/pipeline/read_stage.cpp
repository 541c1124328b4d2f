#include <fstream>
#include <utility>

#include "weft/base/json.h"
#include "weft/base/tasks.h"
#include "weft/pipeline/hashing.h"
#include "weft/pipeline/input_files.h"
#include "weft/pipeline/row_document.h"
#include "weft/pipeline/shard.h"
#include "weft/pipeline/stages.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 3;  // 2: a slip in CSV costs fewer rows; 3: empty rows count

struct BatchRow {
  std::shared_ptr<const SourceFile> file;
  Row row;
};
// The rows of one shard, all of one source.
struct Batch {
  int64_t shard = 0;
  const SourceConfig* source = nullptr;
  std::vector<BatchRow> rows;
  int64_t bytes = 0;       // of the rows
  int64_t bytes_read = 0;  // of the files themselves, compressed or not
};

class InputHash final : public ByteWatcher {
 public:
  void saw(std::string_view bytes) override { hasher_.add(bytes), bytes_ += int64_t(bytes.size()); }
  // What was not read, as where a compressed file is broken or beyond the limit: the hash is of the whole file.
  void see_the_rest(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    in.seekg(bytes_);
    std::vector<char> piece(1 << 20);
    while (in.read(piece.data(), std::streamsize(piece.size())), in.gcount() > 0)
      saw({piece.data(), size_t(in.gcount())});
    if (in.bad()) throw FileError(file + ": cannot be read to its end");
  }
  nlohmann::json finish(const std::string& file, const std::string& source) const {
    return {{"file", file}, {"source", source}, {"bytes", bytes_}, {"hash", hasher_.hex()}};
  }

 private:
  Hasher hasher_;
  int64_t bytes_ = 0;
};

// Cuts all files into batches, which depend on nothing but the files and run.shard_mb. For one thread at a time.
class Batches {
 public:
  Batches(const PipelineConfig& config, const std::vector<InputFile>& files) : config_(config), files_(files) {}

  std::optional<Batch> next() {
    Batch batch{.shard = shard_, .source = nullptr, .rows = {}};
    const int64_t full = config_.run.shard_mb << 20;
    while (batch.bytes < full && (reader_ || open_next(batch))) {
      if (batch.rows.empty()) batch.source = &config_.sources[files_[at_].source];
      Row row;
      if (reader_->next(row)) {
        batch.bytes += row.end - row.begin;
        batch.rows.push_back({file_, std::move(row)});
      } else {
        close();
      }
      constexpr size_t kMostRows = 1 << 18;  // many empty rows are no bytes
      if (batch.rows.size() >= kMostRows) break;
    }
    const int64_t so_far = bytes_done_ + (reader_ ? reader_->bytes_in() : 0);
    batch.bytes_read = so_far - std::exchange(told_, so_far);
    if (batch.rows.empty()) return {};
    ++shard_;
    return batch;
  }
  // Of all files, once all batches are out.
  const nlohmann::json& inputs() const { return inputs_; }
  int64_t num_shards() const { return shard_; }

 private:
  // False at the end, or where the next file is another source's and the batch has rows.
  bool open_next(const Batch& batch) {
    const size_t next = opened_ ? at_ + 1 : 0;
    if (next >= files_.size()) return false;
    const SourceConfig& source = config_.sources[files_[next].source];
    if (!batch.rows.empty() && batch.source != &source) return false;
    at_ = next;
    opened_ = true;
    auto file = std::make_shared<SourceFile>();
    file->path = files_[next].path;
    file->format = format_of(source, file->path);
    hash_ = std::make_unique<InputHash>();
    reader_ = open_rows(source, *file, hash_.get(), config_.read);
    if (file->format == FileFormat::kCsv) read_header(*file);
    file_ = std::move(file);
    return true;
  }
  void read_header(SourceFile& file) {
    Row header;
    if (!reader_->next(header)) return;
    try {
      if (header.broken.empty()) file.columns = csv_fields(header.bytes);
    } catch (const Error&) {}  // without columns, each row is broken
  }
  void close() {
    hash_->see_the_rest(files_[at_].path);
    inputs_.push_back(hash_->finish(files_[at_].path, config_.sources[files_[at_].source].name));
    bytes_done_ += reader_->bytes_in();
    reader_.reset();
  }

  const PipelineConfig& config_;
  const std::vector<InputFile>& files_;
  size_t at_ = 0;
  bool opened_ = false;
  int64_t shard_ = 0, bytes_done_ = 0, told_ = 0;
  std::unique_ptr<InputHash> hash_;
  std::unique_ptr<RowReader> reader_;
  std::shared_ptr<const SourceFile> file_;
  nlohmann::json inputs_ = nlohmann::json::array();
};

std::string shown_bytes(const std::string& bytes) {
  constexpr size_t kMost = 1000;
  return bytes.substr(0, kMost);
}

// One batch to its shard.
class BatchWork {
 public:
  BatchWork(const Batch& batch, const StageContext& context) : batch_(batch), context_(context) {}

  void run(const StageFolder& folder) {
    Counts& c = report_.counts;
    for (const BatchRow& one : batch_.rows) {
      ++c.documents_in;
      c.bytes_in += one.row.end - one.row.begin;
      read(one);
    }
    report_.hash = out_.commit(folder.path() / shard_name(batch_.shard, context_.shard_suffix));
    if (!broken_.empty()) broken_.commit(folder.path() / ("broken-" + shard_name(batch_.shard, ".jsonl")));
    folder.finish(batch_.shard, report_);
  }
  const Counts& counts() const { return report_.counts; }

 private:
  void read(const BatchRow& one) {
    if (!one.row.broken.empty()) return put_aside(one, one.row.broken);
    try {
      Document d;
      std::string why;
      if (!read_document(*batch_.source, *one.file, one.row, d, why)) {
        ++report_.counts.dropped[why];
        return;
      }
      d.id = {uint32_t(batch_.shard), place_++};
      ++report_.counts.documents_out;
      report_.counts.bytes_out += int64_t(d.text.size());
      out_.add(d);
    } catch (const Error& e) { put_aside(one, e.what()); }
  }
  void put_aside(const BatchRow& one, const std::string& why) {
    const nlohmann::json line = {{"file", one.file->path},
                                 {"row", one.row.number},
                                 {"begin", one.row.begin},
                                 {"end", one.row.end},
                                 {"why", why},
                                 {"bytes", shown_bytes(one.row.bytes)}};
    broken_.add_line(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    ++report_.broken;
    ++report_.counts.dropped["broken"];
    const std::string place = fmt::format("{}: row {} at byte {}", one.file->path, one.row.number, one.row.begin);
    report_.show({"broken", why, place, ""}, context_.samples);
  }

  const Batch& batch_;
  const StageContext& context_;
  ShardWriter out_, broken_;
  ShardReport report_;
  uint32_t place_ = 0;
};

}  // namespace

StageIdentity read_identity(const PipelineConfig& config) {
  nlohmann::json parameters = parameters_of(config, {"source", "read"});
  parameters["run.shard_mb"] = config.run.shard_mb;
  parameters["run.compression"] = config.run.compression;
  return {.name = "read", .version = kVersion, .parameters = parameters, .inputs = {}};
}

StageResult run_read_stage(const PipelineConfig& config, const fs::path& path, const StageContext& context) {
  const std::vector<InputFile> files = input_files(config.sources);
  nlohmann::json stamps = nlohmann::json::array();
  int64_t total = 0;
  for (const InputFile& f : files) {
    stamps.push_back({{"file", f.path}, {"bytes", f.bytes}, {"mtime", f.mtime_ns}});
    total += f.bytes;
  }
  StageIdentity identity = read_identity(config);
  identity.inputs = stamps;
  const StageFolder folder(path, identity, context);
  if (folder.is_complete()) return open_stage(path);

  context.progress.begin("read", total);
  Batches batches(config, files);
  const auto next = [&]() -> std::optional<Batch> {
    while (!context.stop) {
      std::optional<Batch> batch = batches.next();
      if (!batch) return {};
      const auto done = folder.finished(batch->shard);
      if (!done) return batch;
      context.progress.add(done->counts, batch->bytes_read, true);
    }
    return {};
  };
  for_each_task(context.threads, next, [&](const Batch& batch) {
    BatchWork work(batch, context);
    work.run(folder);
    context.progress.add(work.counts(), batch.bytes_read, false);
  });
  if (context.stop) throw Interrupted();
  folder.complete(batches.num_shards(), context, {{"inputs", batches.inputs()}});
  return open_stage(path);
}

}  // namespace weft
