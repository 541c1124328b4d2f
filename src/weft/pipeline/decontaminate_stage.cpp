#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/pipeline/input_files.h"
#include "weft/pipeline/open_shards.h"
#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/row_document.h"
#include "weft/pipeline/stages.h"
#include "weft/pipeline/words.h"

namespace weft {
namespace {

constexpr int kDecontaminateVersion = 3;  // 2: short texts are looked for as well; 3: words of scripts without spaces

// The sequences of words of evaluation files; of texts that are shorter than one, all their words, unless these are so
// few ("yes", "B") that any document has them.
class Contamination {
 public:
  explicit Contamination(const DecontaminateConfig& config)
      : n_(config.ngram),
        least_(std::min(config.min_words, config.ngram)),
        table_(make_character_table("[decontaminate]")) {
    read_named("decontaminate.files", [&] {
      for (const std::string& file : expand_names(config.files)) {
        files_.push_back(file);
        read(file);
      }
    });
    if (sequences_.empty())
      throw ConfigError(
          fmt::format("decontaminate.files: no text in them has {} words (decontaminate.min_words)", least_));
  }

  // How many of a document's sequences are among them, and of which evaluation files.
  struct Hits {
    int64_t all = 0;
    std::map<std::string, int64_t> by_file;  // a sequence of several files counts for each
  };
  Hits hits(std::string_view text) const {
    const std::vector<uint64_t> words = plain_word_hashes(*table_, text);
    Hits n;
    for (const auto& [width, known] : sequences_) {
      if (int64_t(words.size()) < width) break;
      for (const uint64_t hash : shingle_hashes(words, width)) {
        const auto found = known.find(hash);
        if (found == known.end()) continue;
        ++n.all;
        for (const size_t file : file_sets_[found->second]) ++n.by_file[files_[file]];
      }
    }
    return n;
  }
  nlohmann::json texts() const {
    return {{"looked_for", texts_}, {"shorter_than_ngram", short_}, {"too_short", too_short_}};
  }

 private:
  void add(std::string_view text) {
    const std::vector<uint64_t> words = plain_word_hashes(*table_, text);
    if (words.empty()) return;
    const auto size = int64_t(words.size());
    if (size < least_) return void(++too_short_);
    ++texts_;
    short_ += size < n_;
    const int64_t width = std::min(n_, size);
    for (const uint64_t hash : shingle_hashes(words, width)) {
      uint32_t& files = sequences_[width][hash];
      files = with_this_file(files);
    }
  }
  // The set of files `set`, and the file that is being read.
  uint32_t with_this_file(uint32_t set) {
    const size_t file = files_.size() - 1;
    const auto [known, is_new] = grown_.try_emplace({set, file}, 0);
    if (!is_new) return known->second;
    std::set<size_t> grown = file_sets_[set];
    grown.insert(file);
    const auto same = std::find(file_sets_.begin(), file_sets_.end(), grown);
    known->second = uint32_t(same - file_sets_.begin());
    if (same == file_sets_.end()) file_sets_.push_back(std::move(grown));
    return known->second;
  }
  void add_strings(const nlohmann::json& value) {
    if (value.is_string()) add(value.get_ref<const std::string&>());
    if (value.is_structured())
      for (const auto& one : value) add_strings(one);
  }
  // A broken evaluation file is an error: a hole in it would go unseen.
  void read(const std::string& path) {
    const SourceConfig source;
    SourceFile file{.path = path, .format = format_of(source, path), .columns = {}};
    if (file.format == FileFormat::kWarc || file.format == FileFormat::kHtml)
      throw ConfigError(path + ": decontaminate.files takes JSON, Parquet, CSV and text");
    const auto rows = open_rows(source, file, nullptr, {});
    Row row;
    while (rows->next(row)) {
      const std::string where = fmt::format("{}: row {}", path, row.number);
      if (!row.broken.empty()) throw FileError(fmt::format("{}: {}", where, row.broken));
      if (has_json_rows(file.format))
        add_strings(parse_json(row.bytes, where));
      else
        add(row.bytes);
    }
  }

  int64_t n_, least_;
  std::shared_ptr<const CharacterTable> table_;
  // By their number of words; each with the place in file_sets_ of the files that have it.
  std::map<int64_t, std::unordered_map<uint64_t, uint32_t>> sequences_;
  std::vector<std::string> files_;
  std::vector<std::set<size_t>> file_sets_ = {{}};
  std::map<std::pair<uint32_t, size_t>, uint32_t> grown_;  // of a set and a file: both
  int64_t texts_ = 0, short_ = 0, too_short_ = 0;
};

}  // namespace

StageIdentity decontaminate_identity(const PipelineConfig& config, const StageResult& before) {
  nlohmann::json parameters = parameters_of(config, {"decontaminate"});
  parameters["texts"] = Contamination(config.decontaminate).texts();
  for (const std::string& file : expand_names(config.decontaminate.files))
    parameters["hashes"].push_back({{"file", file}, {"hash", hash_of_file(file)}});
  return {.name = "decontaminate", .version = kDecontaminateVersion, .parameters = parameters, .inputs = before.hash};
}

StageResult run_decontaminate_stage(const PipelineConfig& config, const StageResult& before,
                                    const std::filesystem::path& path, const StageContext& context) {
  const StageFolder folder(path, decontaminate_identity(config, before), context);
  if (!folder.is_complete()) {
    const Contamination contamination(config.decontaminate);
    const DocumentJudge judge = [&](Document& d, std::map<std::string, int64_t>&) -> std::optional<Drop> {
      const Contamination::Hits hits = contamination.hits(d.text);
      if (hits.all <= config.decontaminate.max_hits) return {};
      Drop drop{"decontaminate", fmt::format("{} sequences of words of evaluation texts:", hits.all)};
      for (const auto& [file, n] : hits.by_file) {
        drop.detail += fmt::format("{}{} {}", drop.evaluation_files.empty() ? " " : ", ", file, n);
        drop.evaluation_files.push_back(file);
      }
      return drop;
    };
    run_map_stage(folder, before, context, [&](int64_t) { return judge; });
  }
  return open_stage(path);
}

}  // namespace weft
