#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/base/not_built.h"
#include "weft/base/tasks.h"
#include "weft/pipeline/charset.h"
#include "weft/pipeline/codec.h"
#include "weft/pipeline/document.h"
#include "weft/pipeline/document_reader.h"
#include "weft/pipeline/html_text.h"
#include "weft/pipeline/input_files.h"
#include "weft/pipeline/open_shards.h"
#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/row_document.h"
#include "weft/pipeline/row_reader.h"
#include "weft/pipeline/stages.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// 2: a slip in CSV costs fewer rows; 3: pages of WARC files whatever their type's case; 4: empty rows count; 5:
// ShareGPT's messages; 6: contents in parts; 7: what WARC files note about themselves is no page, HTML
// files are, and files that are not read are put aside; 8: pages in their character sets, keys of keys, rows that are
// joined, unreadable files are put aside; JSON lists and Parquet are rows.
constexpr int kReadVersion = 9;

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
  // Hashes the unread rest, of a broken file for instance: the hash covers the whole file.
  void see_the_rest(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    in.seekg(bytes_);
    std::vector<char> piece(1 << 20);
    while (in.read(piece.data(), std::streamsize(piece.size())), in.gcount() > 0)
      saw({piece.data(), size_t(in.gcount())});
    if (in.bad()) throw FileError(file + ": cannot be read to its end");
  }
  // `failure`: why it was not read to its end; empty: it was.
  nlohmann::json finish(const std::string& file, const std::string& source, const std::string& failure) const {
    nlohmann::json input = {{"file", file}, {"source", source}, {"bytes", bytes_}, {"hash", hasher_.hex()}};
    if (!failure.empty()) input["failure"] = failure;
    return input;
  }

 private:
  Hasher hasher_;
  int64_t bytes_ = 0;
};

// Cuts all files into batches, which depend on nothing but the files and run.shard_mb. For one thread at a time.
class Batches {
 public:
  // `hashes`: of all files, which are then read to their ends.
  Batches(const PipelineConfig& config, const std::vector<InputFile>& files, bool hashes)
      : config_(config), files_(files), hashes_(hashes) {}

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
  // All input files and their hashes, if any; complete once all batches are out.
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
    if (hashes_) hash_ = std::make_unique<InputHash>();
    try {
      if (!files_[next].unreadable.empty()) throw UnreadFile(file->path, files_[next].unreadable);
      reader_ = open_documents(source, *file, hash_.get(), config_.read);
    } catch (const UnreadFile& e) { reader_ = read_nothing(e.why()); }
    file_ = std::move(file);
    return true;
  }
  void close() {
    if (hash_) {
      if (files_[at_].unreadable.empty()) hash_->see_the_rest(files_[at_].path);
      inputs_.push_back(hash_->finish(files_[at_].path, config_.sources[files_[at_].source].name, reader_->failure()));
    }
    bytes_done_ += reader_->bytes_in();
    reader_.reset();
  }

  const PipelineConfig& config_;
  const std::vector<InputFile>& files_;
  const bool hashes_;
  size_t at_ = 0;
  bool opened_ = false;
  int64_t shard_ = 0, bytes_done_ = 0, told_ = 0;
  std::unique_ptr<InputHash> hash_;
  std::unique_ptr<RowReader> reader_;
  std::shared_ptr<const SourceFile> file_;
  nlohmann::json inputs_ = nlohmann::json::array();
};

// One batch to its shard.
class BatchWork {
 public:
  BatchWork(const Batch& batch, const StageContext& context)
      : batch_(batch), context_(context), reader_(*batch.source) {}

  void run(const StageFolder& folder) {
    Counts& c = report_.counts;
    for (const BatchRow& one : batch_.rows) {
      ++c.documents_in;
      c.bytes_in += one.row.end - one.row.begin;
      read(one);
    }
    report_.keys = reader_.keys();
    for (const auto& [name, n] : reader_.changed()) c.changed[name] += n;
    report_.hash = out_.commit(folder.path() / shard_name(batch_.shard, context_.shard_suffix));
    const fs::path broken = folder.path() / ("broken-" + shard_name(batch_.shard, ".jsonl"));
    if (broken_.empty())
      fs::remove(broken);  // of one that was cut elsewhere
    else
      broken_.commit(broken);
    folder.finish(batch_.shard, report_);
  }
  const Counts& counts() const { return report_.counts; }

 private:
  void read(const BatchRow& one) {
    if (!one.row.broken.empty()) return put_aside(one, one.row.broken);
    try {
      Document d;
      if (const std::string why = reader_.read(*one.file, one.row, d); !why.empty()) {
        ++report_.counts.dropped[why];
        return;
      }
      d.id = {uint32_t(batch_.shard), place_++};
      ++report_.counts.documents_out;
      report_.counts.bytes_out += int64_t(d.text.size());
      out_.add(d);
    } catch (const NotBuilt&) { throw; } catch (const Error& e) {
      put_aside(one, e.what());
    }
  }
  void put_aside(const BatchRow& one, const std::string& why) {
    constexpr size_t kMostShown = 1000;  // bytes
    const nlohmann::json line = {{"file", one.file->path},
                                 {"row", one.row.number},
                                 {"begin", one.row.begin},
                                 {"end", one.row.end},
                                 {"why", why},
                                 {"bytes", one.row.bytes.substr(0, kMostShown)}};
    broken_.add_line(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    ++report_.broken;
    ++report_.counts.dropped["broken"];
    const std::string place = fmt::format("{}: row {} at byte {}", one.file->path, one.row.number, one.row.begin);
    report_.show({"broken", why, place, "", one.file->path, one.row.number}, context_.samples);
  }

  const Batch& batch_;
  const StageContext& context_;
  DocumentReader reader_;
  ShardWriter out_, broken_;
  ShardReport report_;
  uint32_t place_ = 0;
};

// The stamps by which a changed input is noticed.
nlohmann::json stamps_of(const std::vector<InputFile>& files) {
  nlohmann::json stamps = nlohmann::json::array();
  for (const InputFile& f : files) {
    stamps.push_back({{"file", f.path}, {"bytes", f.bytes}, {"mtime", f.mtime_ns}});
    if (!f.unreadable.empty()) stamps.back()["unreadable"] = f.unreadable;
  }
  return stamps;
}

// A file that was only touched, or copied, is no other input: the time that the complete stage knows of it holds where
// that read the same bytes. They are read for that. For the leader, before StageFolder clears what it goes by.
void keep_times_of_equal_files(nlohmann::json& stamps, const fs::path& path) {
  const fs::path stage = path / "stage.json", manifest = path / "manifest.json";
  if (!fs::exists(stage) || !fs::exists(manifest)) return;
  const nlohmann::json before = read_json_file(stage, kManifest), read = read_json_file(manifest, kManifest);
  const auto& made = JsonFields(before, stage.string()).list("inputs", "a list of files");
  const auto& known = JsonFields(read, manifest.string()).list("inputs", "a list of files");
  if (made.size() != stamps.size() || known.size() != stamps.size()) return;
  for (size_t i = 0; i < stamps.size(); ++i) {
    nlohmann::json stamp = stamps[i];
    stamp["mtime"] = JsonFields(made[i], stage.string()).integer("mtime", {});
    if (stamp == stamps[i] || stamp != made[i]) continue;
    const JsonFields input(known[i], manifest.string());
    const std::string file = stamp.at("file");
    if (input.string("file") == file && input.string("hash") == hash_of_file(file)) stamps[i] = stamp;
  }
}

struct ReadInputs {
  int64_t num_shards = 0;
  nlohmann::json inputs;  // with their hashes; of a helper without
  bool all_here = true;   // no shard was made by another process
};

// The first sweep goes through all files, also through the rows that others make shards of: where shards begin is only
// known so. Later ones look for what others have lost, up to the last of it.
ReadInputs read_all(const PipelineConfig& config, const std::vector<InputFile>& files, const StageFolder& folder,
                    const StageContext& context) {
  ReadInputs result;
  std::map<int64_t, std::pair<size_t, int64_t>> cut;  // the leader's: rows and bytes of each shard
  // A helper that was shown other bytes of a file has cut it elsewhere: the leader makes that shard again.
  const auto finished = [&](int64_t shard) -> std::optional<Counts> {
    std::optional<Counts> counts = folder.finished_counts(shard);
    if (!counts || context.helps) return counts;
    const auto& [rows, bytes] = cut.at(shard);
    return size_t(counts->documents_in) == rows && counts->bytes_in == bytes ? counts : std::nullopt;
  };
  PassSpec pass{.shown = "read", .finished = finished};
  for (const InputFile& f : files) pass.work += f.bytes;
  OpenShards shards(folder, pass, context);
  for (bool first = true; shards.next_sweep(); first = false) {
    Batches batches(config, files, first && !context.helps);
    const auto next = [&]() -> std::optional<Batch> {
      while (!context.stop && !shards.sweep_is_over()) {
        std::optional<Batch> batch = batches.next();
        if (batch && !context.helps) cut[batch->shard] = {batch->rows.size(), batch->bytes};
        if (!batch || shards.take(batch->shard, batch->bytes_read)) return batch;
      }
      return {};
    };
    for_each_task(context.threads, next, [&](const Batch& batch) {
      BatchWork work(batch, context);
      work.run(folder);
      shards.made(batch.shard, work.counts(), batch.bytes_read);
    });
    if (!first) continue;
    result.num_shards = batches.num_shards();
    result.inputs = batches.inputs();
  }
  result.all_here = shards.all_made_here();
  return result;
}

// Checks by the files' names that this build of weft can read them.
void judge_build(const PipelineConfig& config, const std::vector<InputFile>& files) {
  std::set<Compression> seen{Compression::kNone};
  bool has_pages = false;
  for (const InputFile& f : files) {
    const FileFormat format = format_of(config.sources[f.source], f.path);
    if (format == FileFormat::kHtml) need_html(f.path);
    const bool pages = format == FileFormat::kHtml || format == FileFormat::kWarc;
    if (pages && !std::exchange(has_pages, true)) need_charsets(f.path);
    const Compression kind = compression_named(f.path);
    if (seen.insert(kind).second) make_codec(kind, f.path);
  }
}

void judge_sources(const PipelineConfig& config, const std::vector<InputFile>& files) {
  for (size_t s = 0; s < config.sources.size(); ++s) {
    std::set<FileFormat> formats;
    for (const InputFile& f : files)
      if (f.source == s) formats.insert(format_of(config.sources[s], f.path));
    const std::vector<std::string> problems = keys_without_effect(config.sources[s], formats);
    if (!problems.empty()) throw ConfigError(problems[0]);
  }
}

// One file that is not read is put aside. Where all of a source are, the pipeline is wrong (another text_key), which is
// said before anything begins.
void judge_files(const PipelineConfig& config, const std::vector<InputFile>& files) {
  for (size_t s = 0; s < config.sources.size(); ++s) {
    std::vector<std::string> unread;
    const bool any = std::any_of(files.begin(), files.end(), [&](const InputFile& f) {
      if (f.source != s) return false;
      try {
        if (!f.unreadable.empty()) throw UnreadFile(f.path, f.unreadable);
        SourceFile file{.path = f.path, .format = format_of(config.sources[s], f.path), .columns = {}};
        open_documents(config.sources[s], file, nullptr, config.read);
        return true;
      } catch (const UnreadFile& e) { unread.emplace_back(e.what()); }
      return false;
    });
    if (any || unread.empty()) continue;
    const std::string others = fmt::format("; none of the {} files of source {} can be read", unread.size(),
                                           in_quotes(config.sources[s].name));
    throw FileError(unread[0] + (unread.size() > 1 ? others : ""));
  }
}

// A key that no row of a source has is a slip, too. Where the source is small, it is seen to its end here; else
// judge_keys_seen() knows.
void judge_keys(const PipelineConfig& config, const std::vector<InputFile>& files, const std::atomic<bool>& stop) {
  constexpr int64_t kMostBytes = 2 << 20;
  for (size_t s = 0; s < config.sources.size(); ++s) {
    DocumentReader reader(config.sources[s]);
    int64_t bytes = 0;
    for (const InputFile& f : files) {
      if (f.source != s || !f.unreadable.empty()) continue;
      SourceFile file{.path = f.path, .format = format_of(config.sources[s], f.path), .columns = {}};
      if (!has_json_rows(file.format) && file.format != FileFormat::kCsv) continue;
      try {
        const auto rows = open_documents(config.sources[s], file, nullptr, config.read);
        for (Row row; bytes <= kMostBytes && !stop && rows->next(row);) try {
            bytes += row.end - row.begin;
            Document d;
            if (row.broken.empty()) reader.read(file, row, d);
          } catch (const NotBuilt&) { throw; } catch (const Error&) {
          }  // a broken row
      } catch (const UnreadFile&) {}
      if (bytes > kMostBytes || stop) break;
    }
    if (bytes <= kMostBytes && !stop) refuse_missing_keys(config.sources[s], reader.keys());
  }
}

// After the last shard, of which all reports are there.
void judge_keys_seen(const PipelineConfig& config, const StageFolder& folder, int64_t num_shards) {
  std::map<std::string, KeysSeen> seen;
  for (int64_t i = 0; i < num_shards; ++i)
    if (const auto report = folder.finished(i)) seen[report->keys.source].add(report->keys);
  for (const SourceConfig& source : config.sources) refuse_missing_keys(source, seen[source.name]);
}

}  // namespace

StageIdentity read_identity(const PipelineConfig& config) {
  nlohmann::json parameters = parameters_of(config, {"source", "read"});
  parameters["run.shard_mb"] = config.run.shard_mb;
  parameters["run.compression"] = config.run.compression;
  return {.name = "read", .version = kReadVersion, .parameters = parameters, .inputs = {}};
}

StageResult run_read_stage(const PipelineConfig& config, const fs::path& path, const StageContext& context) {
  const std::vector<InputFile> files = input_files(config.sources);
  judge_build(config, files);
  judge_sources(config, files);
  judge_files(config, files);
  judge_keys(config, files, context.stop);
  StageIdentity identity = read_identity(config);
  const nlohmann::json stamps = stamps_of(files);
  identity.inputs = stamps;
  if (!context.helps) keep_times_of_equal_files(identity.inputs, path);
  const StageFolder folder(path, identity, context);
  if (!context.helps) folder.note_inputs(stamps);
  if (folder.is_complete()) return open_stage(path);

  const ReadInputs read = read_all(config, files, folder, context);
  if (!context.helps && !read.all_here && stamps_of(input_files(config.sources)) != stamps)
    throw FileError(path.string() + ": the inputs changed while several processes read them; run it again");
  if (!context.helps) judge_keys_seen(config, folder, read.num_shards);
  folder.complete(read.num_shards, context, {{"inputs", read.inputs}});
  return open_stage(path);
}

}  // namespace weft
