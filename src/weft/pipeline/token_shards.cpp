#include "weft/pipeline/token_shards.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/mapped_file.h"
#include "weft/base/tasks.h"
#include "weft/data/id_view.h"
#include "weft/data/token_writer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kTokenBits = 48;  // of a document's second number; above them is its series
constexpr uint64_t kMostTokens = (uint64_t{1} << kTokenBits) - 1;
constexpr size_t kMostSeries = size_t{1} << (64 - kTokenBits);

// Walks over documents as the first step left them, from one on; of what is jumped over only the head is touched.
class Tokenized {
 public:
  struct Place {
    size_t file = 0, byte = 0;
  };
  Tokenized(const TokenShards& shards, Place from) : shards_(shards), at_(from) {}

  bool next() {
    while (rest_.empty()) {
      if (mapped_) at_ = {.file = at_.file + 1, .byte = 0};
      if (at_.file == shards_.tokenized.size()) return false;
      mapped_.emplace(shards_.tokenized[at_.file]);
      WEFT_CHECK(mapped_->text().size() >= at_.byte, "{} is cut short", mapped_->path().string());
      rest_ = mapped_->text().substr(at_.byte);
    }
    place_ = at_;
    uint64_t head[2];
    std::memcpy(head, take(sizeof head, 1).data(), sizeof head);
    id_ = head[0];
    series_ = head[1] >> kTokenBits;
    WEFT_CHECK(series_ < shards_.series.size(), "{} has series {}", mapped_->path().string(), series_);
    const uint64_t tokens = head[1] & kMostTokens;
    tokens_ = take(tokens, sizeof(int32_t));
    mask_ = shards_.masks ? take(tokens, 1) : std::string_view();
    return true;
  }
  // About the document that next() found.
  Place place() const { return place_; }
  uint64_t id() const { return id_; }
  size_t series() const { return series_; }
  int64_t num_tokens() const { return int64_t(tokens_.size() / sizeof(int32_t)); }
  int64_t bytes() const { return int64_t(at_.byte - place_.byte); }
  std::string_view mask() const { return mask_; }
  void read(std::vector<int32_t>& ids) const {  // which may lie at odd addresses
    ids.resize(size_t(num_tokens()));
    if (!ids.empty()) std::memcpy(ids.data(), tokens_.data(), tokens_.size());
  }

 private:
  std::string_view take(uint64_t count, size_t each) {
    WEFT_CHECK(rest_.size() / each >= count, "{} is cut short", mapped_->path().string());
    const std::string_view bytes = rest_.substr(0, count * each);
    rest_.remove_prefix(bytes.size());
    at_.byte += bytes.size();
    return bytes;
  }

  const TokenShards& shards_;
  Place at_, place_;
  std::optional<MappedFile> mapped_;
  std::string_view rest_, tokens_, mask_;
  uint64_t id_ = 0;
  size_t series_ = 0;
};

// What one token file gets.
struct Plan {
  const TokenShards* shards;
  size_t series;
  Tokenized::Place from;
  std::string prefix;
  int64_t documents = 0, tokens = 0;
};

void add_plans(const TokenShards& shards, const StageContext& context, std::vector<Plan>& plans) {
  std::vector<std::vector<Plan>> of_series(shards.series.size());
  for (Tokenized d(shards, {}); d.next();) {
    if (context.stop) throw Interrupted();
    std::vector<Plan>& mine = of_series[d.series()];
    if (mine.empty() || mine.back().tokens >= shards.most)
      mine.push_back({.shards = &shards,
                      .series = d.series(),
                      .from = d.place(),
                      .prefix = fmt::format("{}-{:05}", shards.series[d.series()].name, mine.size())});
    ++mine.back().documents;
    mine.back().tokens += d.num_tokens();
  }
  for (std::vector<Plan>& mine : of_series) std::move(mine.begin(), mine.end(), std::back_inserter(plans));
}

// Counts what is written, and tells it now and then.
class Told {
 public:
  explicit Told(StageProgress& progress) : progress_(progress) {}
  void add(int64_t bytes) {
    ++counts_.documents_in, ++counts_.documents_out;
    bytes_ += bytes;
    constexpr int64_t kOften = 1 << 20;
    if (bytes_ >= kOften) tell();
  }
  void tell() {
    progress_.add(counts_, bytes_, false);
    counts_ = {};
    bytes_ = 0;
  }

 private:
  StageProgress& progress_;
  Counts counts_;
  int64_t bytes_ = 0;
};

// Returns what the manifest says of it.
nlohmann::json write(const Plan& plan, const StageContext& context) {
  const TokenShards& shards = *plan.shards;
  const auto path = [&](const char* suffix) { return shards.folder / (plan.prefix + suffix); };
  MegatronWriter pair(shards.folder / plan.prefix, shards.dtype);
  DurableFile documents(path(".documents"), kOwnName);
  std::optional<DurableFile> mask;
  if (shards.masks) mask.emplace(path(".mask"), kOwnName);
  int64_t counted = 0;
  std::vector<int32_t> ids;
  Told told(context.progress);
  Tokenized d(shards, plan.from);
  for (int64_t left = plan.documents; left > 0;) {
    if (context.stop) throw Interrupted();
    WEFT_CHECK(d.next(), "{}: {} documents are missing", plan.prefix, left);
    if (d.series() != plan.series) continue;
    --left;
    d.read(ids);
    pair.add_document(ids);
    const uint64_t id = d.id();
    documents.write({reinterpret_cast<const char*>(&id), sizeof id});
    if (mask) mask->write(d.mask());
    counted += std::count(d.mask().begin(), d.mask().end(), '\1');
    told.add(d.bytes());
  }
  if (mask) mask->commit();  // first: a pair without its mask would count everything
  pair.commit();
  documents.commit();
  told.tell();
  nlohmann::json file = shards.series[plan.series].more;
  file.update({{"prefix", plan.prefix}, {"tokens", plan.tokens}, {"documents", plan.documents}});
  for (const char* part : {"bin", "idx", "mask"}) {
    if (part == std::string_view("mask") && !shards.masks) continue;
    const fs::path of = path((std::string(".") + part).c_str());
    file[part] = hash_of_file(of);
    file["quick"][part] = hash_of(MappedFile(of));
  }
  file["ids"] = hash_of_file(path(".documents"));
  if (shards.masks) file["counted"] = counted;
  return file;
}

}  // namespace

void append_tokenized(std::string& bytes, uint64_t id, size_t series, const EncodedDocument& document) {
  const auto put = [&](const void* from, size_t size) { bytes.append(static_cast<const char*>(from), size); };
  WEFT_CHECK(document.ids.size() <= kMostTokens && series < kMostSeries, "{} tokens of series {}", document.ids.size(),
             series);
  const uint64_t size = uint64_t(document.ids.size()) | uint64_t(series) << kTokenBits;
  put(&id, sizeof id);
  put(&size, sizeof size);
  put(document.ids.data(), document.ids.size() * sizeof(int32_t));
  put(document.counted.data(), document.counted.size());
}

nlohmann::json write_token_shards(const std::vector<TokenShards>& all, const StageContext& context) {
  std::vector<Plan> plans;
  int64_t bytes = 0;
  for (const TokenShards& shards : all) {
    add_plans(shards, context, plans);
    for (const fs::path& file : shards.tokenized) bytes += int64_t(fs::file_size(file));
  }
  context.progress.begin("token files", bytes);
  std::vector<nlohmann::json> files(plans.size());
  size_t next_plan = 0;
  const auto next = [&]() -> std::optional<size_t> {
    if (next_plan == plans.size() || context.stop) return {};
    return next_plan++;
  };
  for_each_task(context.threads, next, [&](size_t i) { files[i] = write(plans[i], context); });
  if (context.stop) throw Interrupted();
  nlohmann::json list = nlohmann::json::array();
  for (nlohmann::json& file : files) list.push_back(std::move(file));
  return list;
}

}  // namespace weft
