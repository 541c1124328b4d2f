#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/base/rng.h"
#include "weft/base/tasks.h"
#include "weft/data/id_view.h"
#include "weft/data/token_writer.h"
#include "weft/pipeline/hashing.h"
#include "weft/pipeline/shard.h"
#include "weft/pipeline/stages.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 2;
constexpr uint64_t kCopiesSeed = 0x636f70;  // part of the format: other documents would be the copied ones

struct TokenizedDocument {
  uint64_t id = 0;
  int64_t copies = 1;
  std::vector<int32_t> tokens;
};

// What a document's tokens look like between the two steps: id, size, tokens.
void append(std::string& bytes, const TokenizedDocument& d) {
  const auto put = [&](const void* from, size_t size) { bytes.append(static_cast<const char*>(from), size); };
  const auto size = uint64_t(d.tokens.size());
  put(&d.id, sizeof d.id);
  put(&size, sizeof size);
  put(d.tokens.data(), d.tokens.size() * sizeof(int32_t));
}

// Step 1, a shard at a time: NNNNN.train and NNNNN.valid in the folder `work`.
class Encode {
 public:
  Encode(const PipelineConfig& config, const Tokenizer& tokenizer) : config_(config), tokenizer_(tokenizer) {}

  // `samples`: of documents that the tokenizer cannot encode, which are left out.
  ShardReport run(const fs::path& shard, const fs::path& train, const fs::path& valid, int64_t samples) const {
    ShardReport report;
    Counts& c = report.counts;
    std::vector<TokenizedDocument> kept, held_out;
    for_each_in_shard(shard, [&](Document&& d) {
      ++c.documents_in;
      c.bytes_in += int64_t(d.text.size());
      const bool valid_one = is_held_out(d.text);
      TokenizedDocument t{.id = d.id.number(), .copies = copies_of(d), .tokens = {}};
      if (t.copies == 0) {
        ++c.dropped["source.copies"];
        return;
      }
      if (valid_one) t.copies = 1;
      try {
        t.tokens = encode(d.text);
      } catch (const Error& e) {  // an expression that gives up, a word without a token
        ++c.dropped["tokens.tokenizer"];
        return report.show({"tokens.tokenizer", e.what(), d.id.text(), d.text}, samples);
      }
      c.documents_out += t.copies;
      c.bytes_out += t.copies * int64_t(d.text.size());
      c.changed[valid_one ? "tokens.valid" : "tokens.train"] += t.copies * int64_t(t.tokens.size());
      (valid_one ? held_out : kept).push_back(std::move(t));
    });
    write(train, kept);
    write(valid, held_out);
    return report;
  }

 private:
  bool is_held_out(const std::string& text) const {
    return std::ldexp(double(hash64(text) >> 11), -53) < config_.tokens.valid_fraction;
  }
  int64_t copies_of(const Document& d) const {
    const auto source = std::find_if(config_.sources.begin(), config_.sources.end(),
                                     [&](const SourceConfig& s) { return s.name == d.source; });
    const double copies = source == config_.sources.end() ? 1 : source->copies, whole = std::floor(copies);
    return int64_t(whole) + (random_uniform(kCopiesSeed, d.id.number()) < copies - whole);
  }
  std::vector<int32_t> encode(const std::string& text) const {
    std::vector<int32_t> ids = tokenizer_.beginning();
    tokenizer_.encode(text, ids);
    if (tokenizer_.end_of_document() >= 0) ids.push_back(tokenizer_.end_of_document());
    return ids;
  }
  // Copies do not stand beside each other: all documents, then all second copies, and so on.
  static void write(const fs::path& file, const std::vector<TokenizedDocument>& documents) {
    WholeFile out(file);
    std::string bytes;
    bool more = true;
    for (int64_t copy = 0; more; ++copy) {
      more = false;
      for (const TokenizedDocument& d : documents) {
        if (copy >= d.copies) continue;
        bytes.clear();
        append(bytes, d);
        out.write(bytes);
        more = true;
      }
    }
    out.commit();
  }

  const PipelineConfig& config_;
  const Tokenizer& tokenizer_;
};

// Step 2: documents one after the other into NAME-00000, NAME-00001, ...
class TokenShards {
 public:
  TokenShards(fs::path folder, std::string name, std::string dtype, int64_t most)
      : folder_(std::move(folder)), name_(std::move(name)), dtype_(std::move(dtype)), most_(most) {}

  void add_file(const fs::path& file) {
    const MappedFile mapped(file);
    for (std::string_view rest = mapped.text(); !rest.empty();) {
      uint64_t head[2];  // id, tokens
      WEFT_CHECK(rest.size() >= sizeof head, "{} is cut short", file.string());
      std::memcpy(head, rest.data(), sizeof head);
      rest.remove_prefix(sizeof head);
      WEFT_CHECK(rest.size() / sizeof(int32_t) >= head[1], "{} is cut short", file.string());
      tokens_.resize(head[1]);
      std::memcpy(tokens_.data(), rest.data(), head[1] * sizeof(int32_t));
      rest.remove_prefix(head[1] * sizeof(int32_t));
      add(head[0]);
    }
  }
  // The files, for the manifest.
  nlohmann::json finish() {
    commit();
    return std::move(files_);
  }

 private:
  void add(uint64_t id) {
    if (!writer_) {
      prefix_ = fmt::format("{}-{:05}", name_, files_.size());
      writer_ = std::make_unique<MegatronWriter>(folder_ / prefix_, dtype_);
    }
    writer_->add_document(tokens_);
    documents_.append(reinterpret_cast<const char*>(&id), sizeof id);
    num_tokens_ += int64_t(tokens_.size());
    if (num_tokens_ >= most_) commit();
  }
  void commit() {
    if (!writer_) return;
    writer_->commit();
    writer_.reset();
    WholeFile out(folder_ / (prefix_ + ".documents"));
    out.write(documents_);
    out.commit();
    const auto hash = [&](const char* suffix) { return hash_of_file(folder_ / (prefix_ + suffix)); };
    const auto quick = [&](const char* suffix) { return hash_of(MappedFile(folder_ / (prefix_ + suffix))); };
    files_.push_back({{"prefix", prefix_},
                      {"tokens", num_tokens_},
                      {"documents", documents_.size() / sizeof(uint64_t)},
                      {"bin", hash(".bin")},
                      {"idx", hash(".idx")},
                      {"ids", hash(".documents")},
                      {"quick", {{"bin", quick(".bin")}, {"idx", quick(".idx")}}}});
    documents_.clear();
    num_tokens_ = 0;
  }

  fs::path folder_;
  std::string name_, dtype_, prefix_, documents_;
  int64_t most_, num_tokens_ = 0;
  std::vector<int32_t> tokens_;
  std::unique_ptr<MegatronWriter> writer_;
  nlohmann::json files_ = nlohmann::json::array();
};

void encode_all(const Encode& encode, const StageFolder& folder, const StageResult& before,
                const StageContext& context) {
  context.progress.begin("tokens", before.counts.bytes_out);
  const fs::path work = folder.path() / "work";
  fs::create_directories(work);
  int64_t next_shard = 0;
  const auto next = [&]() -> std::optional<int64_t> {
    for (; next_shard < int64_t(before.shards.size()) && !context.stop; ++next_shard) {
      const auto done = folder.finished(next_shard);
      if (!done) return next_shard++;
      context.progress.add(done->counts, done->counts.bytes_in, true);
    }
    return {};
  };
  for_each_task(context.threads, next, [&](int64_t shard) {
    const ShardReport report =
        encode.run(before.folder / before.shards[size_t(shard)], work / shard_name(shard, ".train"),
                   work / shard_name(shard, ".valid"), context.samples);
    folder.finish(shard, report);
    context.progress.add(report.counts, report.counts.bytes_in, false);
  });
  if (context.stop) throw Interrupted();
}

}  // namespace

StageResult run_tokens_stage(const PipelineConfig& config, const StageResult& before, const fs::path& path,
                             const StageContext& context) {
  const auto tokenizer = read_tokenizer(config.tokens.tokenizer);
  nlohmann::json parameters = parameters_of(config, {"tokens"});
  parameters["tokenizer"] = tokenizer->fingerprint();
  for (const SourceConfig& s : config.sources) parameters["copies"][s.name] = s.copies;
  const StageFolder folder(path,
                           {.name = "tokens", .version = kVersion, .parameters = parameters, .inputs = before.hash});
  if (folder.is_complete()) return open_stage(path);

  encode_all(Encode(config, *tokenizer), folder, before, context);
  constexpr int64_t kIdsOfUint16 = 65536;
  const std::string dtype = tokenizer->vocab_size() <= kIdsOfUint16 ? "uint16" : "int32";
  nlohmann::json files = nlohmann::json::array();
  for (const char* name : {"train", "valid"}) {
    TokenShards shards(path, name, dtype, config.tokens.shard_mtokens * 1'000'000);
    for (size_t i = 0; i < before.shards.size(); ++i) {
      if (context.stop) throw Interrupted();
      shards.add_file(path / "work" / shard_name(int64_t(i), fmt::format(".{}", name)));
    }
    for (auto& file : shards.finish()) files.push_back(std::move(file));
  }
  folder.complete(int64_t(before.shards.size()), context, {{"files", files}});
  fs::remove_all(path / "work");
  return open_stage(path);
}

}  // namespace weft
