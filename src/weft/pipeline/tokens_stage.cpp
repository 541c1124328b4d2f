#include <algorithm>
#include <cmath>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/base/rng.h"
#include "weft/pipeline/document.h"
#include "weft/pipeline/document_encoder.h"
#include "weft/pipeline/open_shards.h"
#include "weft/pipeline/stages.h"
#include "weft/pipeline/token_shards.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kTokensVersion = 2, kConversationsVersion = 4;
constexpr uint64_t kCopiesSeed = 0x636f70;  // part of the format: other documents would be the copied ones

struct TokenizedDocument {
  uint64_t id = 0;
  size_t series = 0;
  int64_t copies = 1;
  EncodedDocument encoded;
};

// Step 1, a shard at a time: NNNNN.train and NNNNN.valid in the folder `work`.
class Encode {
 public:
  // `samples`: to be shown of documents that are left out, for each reason.
  Encode(const PipelineConfig& config, const DocumentEncoder& encoder, int64_t samples)
      : config_(config), encoder_(encoder), samples_(samples) {}

  ShardReport run(const fs::path& shard, const fs::path& train, const fs::path& valid) const {
    ShardReport report;
    Counts& c = report.counts;
    std::vector<TokenizedDocument> kept, held_out;
    for_each_in_shard(shard, [&](Document&& d) {
      ++c.documents_in;
      c.bytes_in += int64_t(d.text.size());
      const bool valid_one = is_held_out(d.text);
      const size_t source = source_of(d);
      TokenizedDocument t{.id = d.id.number(),
                          .series = config_.has_weights() ? source : 0,
                          .copies = copies_of(d, config_.sources[source].copies),
                          .encoded = {}};
      if (t.copies == 0) {
        ++c.dropped["source.copies"];
        return;
      }
      if (valid_one) t.copies = 1;
      if (const auto drop = encoder_.encode(d, t.encoded)) {
        ++c.dropped[drop->reason];
        return report.show({drop->reason, drop->detail, d.id.text(), d.text, d.origin.file, d.origin.row}, samples_);
      }
      c.documents_out += t.copies;
      c.bytes_out += t.copies * int64_t(d.text.size());
      c.changed[valid_one ? "tokens.valid" : "tokens.train"] += t.copies * int64_t(t.encoded.ids.size());
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
  size_t source_of(const Document& d) const {
    const auto source = std::find_if(config_.sources.begin(), config_.sources.end(),
                                     [&](const SourceConfig& s) { return s.name == d.source; });
    if (source == config_.sources.end())
      throw FileError(fmt::format("document {} is of source {}, which the pipeline has not; remove {} and run it again",
                                  d.id.text(), in_quotes(d.source), config_.run.dir));
    return size_t(source - config_.sources.begin());
  }
  static int64_t copies_of(const Document& d, double copies) {
    const double whole = std::floor(copies);
    return int64_t(whole) + (random_uniform(kCopiesSeed, d.id.number()) < copies - whole);
  }
  // Copies do not stand beside each other: all documents, then all second copies, and so on.
  static void write(const fs::path& file, const std::vector<TokenizedDocument>& documents) {
    DurableFile out(file, kOwnName);
    std::string bytes;
    bool more = true;
    for (int64_t copy = 0; more; ++copy) {
      more = false;
      for (const TokenizedDocument& d : documents) {
        if (copy >= d.copies) continue;
        bytes.clear();
        append_tokenized(bytes, d.id, d.series, d.encoded);
        out.write(bytes);
        more = true;
      }
    }
    out.commit();
  }

  const PipelineConfig& config_;
  const DocumentEncoder& encoder_;
  int64_t samples_;
};

void encode_all(const Encode& encode, const StageFolder& folder, const StageResult& before,
                const StageContext& context) {
  const fs::path work = folder.make_work_folder();
  for_each_open_shard(folder, before, context, [&](int64_t shard) {
    return encode.run(before.checked_shard(shard), work / shard_name(shard, ".train"),
                      work / shard_name(shard, ".valid"));
  });
}

// Without weights all sources are one series, named by the part alone.
std::vector<TokenSeries> series_of(const PipelineConfig& config, const std::string& part) {
  if (!config.has_weights()) return {{.name = part}};
  std::vector<TokenSeries> all;
  for (const SourceConfig& s : config.sources)
    all.push_back({.name = part + "-" + s.name, .more = {{"source", s.name}, {"weight", *s.weight}}});
  return all;
}

// Its share would silently go to the others.
void refuse_sources_without_tokens(const PipelineConfig& config, const nlohmann::json& files) {
  for (const SourceConfig& s : config.sources) {
    const auto is_of = [&](const nlohmann::json& file) {
      return file.at("source") == s.name && file.at("prefix").get<std::string>().starts_with("train-");
    };
    if (s.weight.value_or(0) > 0 && std::none_of(files.begin(), files.end(), is_of))
      throw Error(fmt::format(
          "source {}: has source.weight = {}, but no document of it is left for training; give it weight = 0, or "
          "look in the manifests of the stages for what was dropped",
          in_quotes(s.name), *s.weight));
  }
}

// Step 2, for which all shards are encoded. Returns the files, for the manifest.
nlohmann::json write_token_files(const PipelineConfig& config, const DocumentEncoder& encoder,
                                 const StageFolder& folder, const StageResult& before, const StageContext& context) {
  constexpr int64_t kIdsOfUint16 = 65536;
  const std::string dtype = encoder.tokenizer().vocab_size() <= kIdsOfUint16 ? "uint16" : "int32";
  std::vector<TokenShards> all;
  for (const char* name : {"train", "valid"}) {
    TokenShards& shards = all.emplace_back(TokenShards{.folder = folder.path(),
                                                       .series = series_of(config, name),
                                                       .tokenized = {},
                                                       .dtype = dtype,
                                                       .most = config.tokens.shard_mtokens * 1'000'000,
                                                       .masks = encoder.has_masks()});
    for (size_t i = 0; i < before.shards.size(); ++i)
      shards.tokenized.push_back(folder.work_folder() / shard_name(int64_t(i), fmt::format(".{}", name)));
  }
  nlohmann::json files = write_token_shards(all, context);
  if (config.has_weights()) refuse_sources_without_tokens(config, files);
  return files;
}

}  // namespace

StageResult run_tokens_stage(const PipelineConfig& config, const StageResult& before, const fs::path& path,
                             const StageContext& context) {
  const DocumentEncoder encoder(config.tokens, config.has_conversations());
  nlohmann::json parameters = parameters_of(config, {"tokens"});
  parameters.update(encoder.parameters());
  for (const SourceConfig& s : config.sources) {
    parameters["copies"][s.name] = s.copies;
    if (s.weight) parameters["weights"][s.name] = *s.weight;
  }
  const StageFolder folder(path,
                           {.name = "tokens",
                            .version = config.has_conversations() ? kConversationsVersion : kTokensVersion,
                            .parameters = parameters,
                            .inputs = before.hash},
                           context);
  if (folder.is_complete()) {
    folder.remove_work_folder();  // which a run that was killed at its end left
    return open_stage(path);
  }
  encode_all(Encode(config, encoder, context.samples), folder, before, context);
  nlohmann::json files;
  if (!context.helps) files = write_token_files(config, encoder, folder, before, context);
  nlohmann::json more{{"files", files}, {"vocab_size", encoder.tokenizer().vocab_size()}};
  if (!encoder.chat_templates().empty()) more["chat_templates"] = encoder.chat_templates();
  folder.complete(int64_t(before.shards.size()), context, more);
  folder.remove_work_folder();
  return open_stage(path);
}

}  // namespace weft
