#include <algorithm>

#include "weft/base/durable_file.h"
#include "weft/base/hashing.h"
#include "weft/base/mapped_file.h"
#include "weft/pipeline/document.h"
#include "weft/pipeline/duplicates.h"
#include "weft/pipeline/open_shards.h"
#include "weft/pipeline/stages.h"
#include "weft/pipeline/url.h"
#include "weft/pipeline/words.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// 2: URLs of the same page are equal; 3: words of scripts without spaces; 4: the reasons of duplicates are of the way
// to them; 5: what is no URL is not compared as one
constexpr int kDedupVersion = 5;

// What a key is of: its highest bits, so that keys of a kind come together, lines last.
enum class KeyKind : uint64_t { kText, kUrl, kBand, kLine };
constexpr int kKindShift = 62;

KeyRecord record_of(KeyKind kind, Hash128 key, uint64_t document, uint64_t extra) {
  return {uint64_t(kind) << kKindShift | key.high >> 2, key.low, document, extra};
}
KeyKind kind_of(const KeyRecord& r) { return KeyKind(r.high >> kKindShift); }

// Pass 1, a shard at a time: NNNNN.keys, and NNNNN.shingles before it.
class KeyPass {
 public:
  KeyPass(const DedupConfig& config, fs::path work)
      : c_(config),
        work_(std::move(work)),
        shingles_(work_),
        minhash_(config.bands, config.rows),
        table_(config.near ? make_character_table("dedup.near") : nullptr) {}

  fs::path keys_of(int64_t shard) const { return work_ / shard_name(shard, ".keys"); }
  const ShingleFiles& shingles() const { return shingles_; }

  // Returns the counts of what it read.
  Counts run(int64_t shard, const fs::path& file) const {
    std::vector<KeyRecord> records;
    DurableFile sets(shingles_.file_of(shard), kOwnName);
    uint64_t place = 0;
    Counts counts;
    for_each_in_shard(file, [&](Document&& d) {
      ++counts.documents_in;
      counts.bytes_in += int64_t(d.text.size());
      add_exact(d, records);
      if (c_.near) add_near(d, records, sets, place);
    });
    sets.commit();
    write_run(keys_of(shard), std::move(records));
    return counts;
  }

 private:
  void add_exact(const Document& d, std::vector<KeyRecord>& records) const {
    const uint64_t number = d.id.number();
    if (c_.documents) records.push_back(record_of(KeyKind::kText, hash128(d.text), number, 0));
    if (c_.urls && is_url(d.url)) records.push_back(record_of(KeyKind::kUrl, hash128(normal_url(d.url)), number, 0));
    if (c_.lines == "off") return;
    uint64_t line_number = 0;
    for_each_text_line(d.text, [&](std::string_view line) {
      const uint64_t at = line_number++;
      if (!line.empty()) records.push_back(record_of(KeyKind::kLine, hash128(line), number, at));
    });
  }
  void add_near(const Document& d, std::vector<KeyRecord>& records, DurableFile& sets, uint64_t& place) const {
    const std::vector<uint64_t> shingles = shingle_hashes(plain_word_hashes(*table_, d.text), c_.ngram);
    if (shingles.empty()) return;
    for (const Hash128& key : minhash_.band_keys(shingles))
      records.push_back(record_of(KeyKind::kBand, key, d.id.number(), place));
    const std::vector<uint32_t> set = shingle_set(shingles);
    const auto size = uint32_t(set.size());
    sets.write({reinterpret_cast<const char*>(&size), sizeof size});
    sets.write({reinterpret_cast<const char*>(set.data()), set.size() * sizeof(uint32_t)});
    place += sizeof size + set.size() * sizeof(uint32_t);
  }

 public:
  // Lines without the white space around them; blank ones are empty.
  template <class Take>
  static void for_each_text_line(std::string_view text, const Take& take) {
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      take(trim_white_space(text.substr(at, end - at)));
      at = end + 1;
    }
  }

 private:
  DedupConfig c_;
  fs::path work_;
  ShingleFiles shingles_;
  MinHash minhash_;
  std::shared_ptr<const CharacterTable> table_;
};

// Pass 2: all keys in order. Writes `lines` (document, line), `dropped` (document, kept, reason) and duplicates.jsonl.
class Merge {
 public:
  Merge(const DedupConfig& config, const KeyPass& keys, const fs::path& work, int64_t num_documents,
        const StageContext& context)
      : c_(config),
        work_(work),
        context_(context),
        bands_(clusters_, keys.shingles(), config.jaccard),
        lines_(work, "lines"),
        num_documents_(num_documents) {}

  void run(const std::vector<fs::path>& runs) {
    const auto look = [&](int64_t records) {
      if (context_.stop) throw Interrupted();
      context_.progress.add({}, records * int64_t(sizeof(KeyRecord)), false);
    };
    int64_t bytes = 0;
    for (const fs::path& run : runs) bytes += int64_t(fs::file_size(run));
    const RunMergeOptions options{.look = look};
    const bool once = runs.size() <= options.fan_in;  // else some records are merged again, nobody knows how many
    context_.progress.begin("dedup, pairs", once ? bytes : 0);
    merge_runs(
        runs, work_, [&](const KeyRecord& r) { take(r); }, options);
    if (c_.urls && num_urls_ == 0 && num_documents_ > 0)
      throw ConfigError(
          "dedup.urls = true, but no document has a URL (as https://example.org/page): source.url_key names the key or "
          "column that it is under; or leave dedup.urls out");
    context_.progress.begin("dedup, lines", 0);
    lines_.finish(work_ / "lines", look);
    const std::vector<Duplicate> all = clusters_.duplicates();
    tell(all);
    std::vector<KeyRecord> records;
    for (const Duplicate& d : all) records.push_back({d.document, d.kept, uint64_t(d.same), 0});
    write_run(work_ / "dropped", std::move(records));  // last: it says that all of this is done
  }

 private:
  void take(const KeyRecord& r) {
    const KeyKind kind = kind_of(r);
    num_urls_ += kind == KeyKind::kUrl;
    if (kind == KeyKind::kLine) return take_line(r);
    if (!last_ || !last_->same_key(r)) {
      last_ = r;
      if (kind == KeyKind::kBand) bands_.begin(r);
      return;
    }
    if (kind == KeyKind::kBand) return bands_.add(r);
    clusters_.join(last_->document, r.document, kind == KeyKind::kText ? Same::kText : Same::kUrl, 1);
  }
  // Documents that are dropped do not count: what stood only there would be lost.
  void take_line(const KeyRecord& r) {
    if (clusters_.is_dropped(r.document)) return;
    const bool first = !last_ || !last_->same_key(r);
    if (!first && c_.lines == "keep_none" && !first_is_out_) drop_line(*last_);
    if (!first) drop_line(r);
    first_is_out_ = !first;
    if (first) last_ = r;
  }
  void drop_line(const KeyRecord& r) { lines_.add({r.document, r.extra, 0, 0}); }

  void tell(const std::vector<Duplicate>& all) const {
    constexpr const char* kNames[] = {"text", "url", "near"};
    DurableFile out(work_.parent_path() / "duplicates.jsonl", kOwnName);
    for (const Duplicate& d : all) {
      nlohmann::json line = {{"id", DocumentId::of_number(d.document).text()},
                             {"kept", DocumentId::of_number(d.kept).text()},
                             {"by", kNames[size_t(d.same)]}};
      if (d.same == Same::kNear) line["jaccard"] = d.jaccard;
      out.write(line.dump() + "\n");
    }
    out.commit();
  }

  const DedupConfig& c_;
  fs::path work_;
  const StageContext& context_;
  Clusters clusters_;
  BandGroup bands_;
  RecordSorter lines_;
  std::optional<KeyRecord> last_;
  bool first_is_out_ = false;
  const int64_t num_documents_;
  int64_t num_urls_ = 0;
};

// A sorted file of records, of which a shard's are wanted.
class RecordFile {
 public:
  explicit RecordFile(const fs::path& file) : file_(file) {}
  std::span<const KeyRecord> of_shard(int64_t shard) const {
    const std::span<const KeyRecord> all(reinterpret_cast<const KeyRecord*>(file_.bytes().data()),
                                         file_.bytes().size() / sizeof(KeyRecord));
    const auto at = [&](int64_t s) {
      return std::lower_bound(all.begin(), all.end(), uint64_t(s) << 32,
                              [](const KeyRecord& r, uint64_t value) { return r.high < value; });
    };
    return {at(shard), at(shard + 1)};
  }

 private:
  MappedFile file_;
};

// Pass 3, for a shard: takes out what pass 2 found. Both lists are gone through beside the shard, which is in the same
// order.
class Apply {
 public:
  Apply(const fs::path& work, int64_t shard)
      : dropped_file_(std::make_shared<RecordFile>(work / "dropped")),
        lines_file_(std::make_shared<RecordFile>(work / "lines")),
        dropped_(dropped_file_->of_shard(shard)),
        lines_(lines_file_->of_shard(shard)) {}

  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>& changes) {
    constexpr const char* kReasons[] = {"dedup.documents", "dedup.urls", "dedup.near"};
    const uint64_t number = d.id.number();
    dropped_ = dropped_.subspan(
        size_t(std::find_if(dropped_.begin(), dropped_.end(), [&](const KeyRecord& r) { return r.high >= number; }) -
               dropped_.begin()));
    if (!dropped_.empty() && dropped_.front().high == number)
      return Drop{kReasons[dropped_.front().document], "kept: " + DocumentId::of_number(dropped_.front().low).text()};
    return take_out_lines(d, changes);
  }

 private:
  std::optional<Drop> take_out_lines(Document& d, std::map<std::string, int64_t>& changes) {
    const uint64_t number = d.id.number();
    while (!lines_.empty() && lines_.front().high < number) lines_ = lines_.subspan(1);
    if (lines_.empty() || lines_.front().high != number) return {};
    std::string kept;
    uint64_t at = 0;
    for (size_t begin = 0; begin <= d.text.size(); ++at) {
      const size_t end = std::min(d.text.find('\n', begin), d.text.size());
      const size_t next = std::min(end + 1, d.text.size());
      if (!lines_.empty() && lines_.front().high == number && lines_.front().low == at) {
        ++changes["dedup.lines"];
        lines_ = lines_.subspan(1);
      } else {
        kept.append(d.text, begin, next - begin);
      }
      begin = end + 1;
    }
    d.text = std::move(kept);
    if (trim_white_space(d.text).empty()) return Drop{"dedup.lines", "no line is left"};
    return {};
  }

  std::shared_ptr<const RecordFile> dropped_file_, lines_file_;
  std::span<const KeyRecord> dropped_, lines_;
};

void find_duplicates(const DedupConfig& config, const StageFolder& folder, const StageResult& before,
                     const StageContext& context) {
  const fs::path work = folder.make_work_folder();
  const KeyPass keys(config, work);
  const auto n = int64_t(before.shards.size());
  Counts about;  // of a shard whose keys are there; nobody noted more
  about.bytes_in = before.counts.bytes_out / std::max<int64_t>(1, n);
  const auto finished = [&](int64_t shard) {
    return fs::exists(keys.keys_of(shard)) ? std::optional(about) : std::nullopt;
  };
  const PassSpec pass{.part = 0, .shown = "dedup, keys", .work = before.counts.bytes_out, .finished = finished};
  for_each_open_shard(folder, pass, n, context,
                      [&](int64_t shard) { return keys.run(shard, before.checked_shard(shard)); });
  if (context.helps) return;  // the rest is the leader's
  std::vector<fs::path> runs;
  for (int64_t i = 0; i < n; ++i) runs.push_back(keys.keys_of(i));
  Merge(config, keys, work, before.counts.documents_out, context).run(runs);
}

}  // namespace

StageIdentity dedup_identity(const PipelineConfig& config, const StageResult& before) {
  return {
      .name = "dedup", .version = kDedupVersion, .parameters = parameters_of(config, {"dedup"}), .inputs = before.hash};
}

StageResult run_dedup_stage(const PipelineConfig& config, const StageResult& before, const fs::path& path,
                            const StageContext& context) {
  const StageFolder folder(path, dedup_identity(config, before), context);
  if (folder.is_complete()) {
    folder.remove_work_folder();  // which a run that was killed at its end left
    return open_stage(path);
  }
  const fs::path work = folder.work_folder();
  if (context.helps || !fs::exists(work / "dropped")) find_duplicates(config.dedup, folder, before, context);
  run_map_stage(folder, before, context, [&](int64_t shard) -> DocumentJudge {
    return [apply = Apply(work, shard), urls = config.dedup.urls](Document& d,
                                                                  std::map<std::string, int64_t>& changes) mutable {
      if (urls && !d.url.empty() && !is_url(d.url)) ++changes["dedup.no_url"];
      return apply.judge(d, changes);
    };
  });
  folder.remove_work_folder();
  return open_stage(path);
}

}  // namespace weft
