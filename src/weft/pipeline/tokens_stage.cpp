#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/base/rng.h"
#include "weft/data/id_view.h"
#include "weft/data/token_writer.h"
#include "weft/pipeline/document_encoder.h"
#include "weft/pipeline/hashing.h"
#include "weft/pipeline/open_shards.h"
#include "weft/pipeline/shard.h"
#include "weft/pipeline/stages.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 2;
constexpr uint64_t kCopiesSeed = 0x636f70;  // part of the format: other documents would be the copied ones

struct TokenizedDocument {
  uint64_t id = 0;
  int64_t copies = 1;
  EncodedDocument encoded;
};

// What a document's tokens look like between the two steps: id, size, tokens, and the mask where there is one.
void append(std::string& bytes, const TokenizedDocument& d) {
  const auto put = [&](const void* from, size_t size) { bytes.append(static_cast<const char*>(from), size); };
  const std::vector<int32_t>& ids = d.encoded.ids;
  const auto size = uint64_t(ids.size());
  put(&d.id, sizeof d.id);
  put(&size, sizeof size);
  put(ids.data(), ids.size() * sizeof(int32_t));
  put(d.encoded.counted.data(), d.encoded.counted.size());
}

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
      TokenizedDocument t{.id = d.id.number(), .copies = copies_of(d), .encoded = {}};
      if (t.copies == 0) {
        ++c.dropped["source.copies"];
        return;
      }
      if (valid_one) t.copies = 1;
      if (const auto drop = encoder_.encode(d, t.encoded)) {
        ++c.dropped[drop->reason];
        return report.show({drop->reason, drop->detail, d.id.text(), d.text}, samples_);
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
  int64_t copies_of(const Document& d) const {
    const auto source = std::find_if(config_.sources.begin(), config_.sources.end(),
                                     [&](const SourceConfig& s) { return s.name == d.source; });
    const double copies = source == config_.sources.end() ? 1 : source->copies, whole = std::floor(copies);
    return int64_t(whole) + (random_uniform(kCopiesSeed, d.id.number()) < copies - whole);
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
  const DocumentEncoder& encoder_;
  int64_t samples_;
};

// Step 2: documents one after the other into NAME-00000, NAME-00001, ...
class TokenShards {
 public:
  struct Spec {
    fs::path folder;
    std::string name, dtype;
    int64_t most;  // tokens of a file, about
    bool masks;
  };
  explicit TokenShards(Spec spec) : spec_(std::move(spec)) {}

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
      if (spec_.masks) {
        WEFT_CHECK(rest.size() >= head[1], "{} is cut short", file.string());
        mask_ += rest.substr(0, head[1]);
        rest.remove_prefix(head[1]);
      }
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
      prefix_ = fmt::format("{}-{:05}", spec_.name, files_.size());
      writer_ = std::make_unique<MegatronWriter>(spec_.folder / prefix_, spec_.dtype);
    }
    writer_->add_document(tokens_);
    documents_.append(reinterpret_cast<const char*>(&id), sizeof id);
    num_tokens_ += int64_t(tokens_.size());
    if (num_tokens_ >= spec_.most) commit();
  }
  void commit() {
    if (!writer_) return;
    const auto write = [&](const char* suffix, const std::string& bytes) {
      WholeFile out(path(suffix));
      out.write(bytes);
      out.commit();
    };
    if (spec_.masks) write(".mask", mask_);  // first: a pair without its mask would count everything
    writer_->commit();
    writer_.reset();
    write(".documents", documents_);
    nlohmann::json file = {
        {"prefix", prefix_}, {"tokens", num_tokens_}, {"documents", documents_.size() / sizeof(uint64_t)}};
    for (const char* part : {"bin", "idx", "mask"}) {
      if (part == std::string_view("mask") && !spec_.masks) continue;
      file[part] = hash_of_file(path(std::string(".") + part));
      file["quick"][part] = hash_of(MappedFile(path(std::string(".") + part)));
    }
    file["ids"] = hash_of_file(path(".documents"));
    if (spec_.masks) file["counted"] = std::count(mask_.begin(), mask_.end(), '\1');
    files_.push_back(std::move(file));
    mask_.clear();
    documents_.clear();
    num_tokens_ = 0;
  }

  fs::path path(const std::string& suffix) const { return spec_.folder / (prefix_ + suffix); }

  Spec spec_;
  std::string prefix_, documents_, mask_;
  int64_t num_tokens_ = 0;
  std::vector<int32_t> tokens_;
  std::unique_ptr<MegatronWriter> writer_;
  nlohmann::json files_ = nlohmann::json::array();
};

void encode_all(const Encode& encode, const StageFolder& folder, const StageResult& before,
                const StageContext& context) {
  const fs::path work = folder.make_work_folder();
  for_each_open_shard(folder, before, context, [&](int64_t shard) {
    return encode.run(before.folder / before.shards[size_t(shard)], work / shard_name(shard, ".train"),
                      work / shard_name(shard, ".valid"));
  });
}

// Step 2, for which all shards are encoded. Returns the files, for the manifest.
nlohmann::json write_token_files(const PipelineConfig& config, const DocumentEncoder& encoder,
                                 const StageFolder& folder, const StageResult& before, const StageContext& context) {
  constexpr int64_t kIdsOfUint16 = 65536;
  const std::string dtype = encoder.tokenizer().vocab_size() <= kIdsOfUint16 ? "uint16" : "int32";
  nlohmann::json files = nlohmann::json::array();
  for (const char* name : {"train", "valid"}) {
    TokenShards shards({.folder = folder.path(),
                        .name = name,
                        .dtype = dtype,
                        .most = config.tokens.shard_mtokens * 1'000'000,
                        .masks = encoder.has_masks()});
    for (size_t i = 0; i < before.shards.size(); ++i) {
      if (context.stop) throw Interrupted();
      shards.add_file(folder.work_folder() / shard_name(int64_t(i), fmt::format(".{}", name)));
    }
    for (auto& file : shards.finish()) files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

StageResult run_tokens_stage(const PipelineConfig& config, const StageResult& before, const fs::path& path,
                             const StageContext& context) {
  const DocumentEncoder encoder(config.tokens, config.has_conversations());
  nlohmann::json parameters = parameters_of(config, {"tokens"});
  parameters.update(encoder.parameters());
  for (const SourceConfig& s : config.sources) parameters["copies"][s.name] = s.copies;
  const StageFolder folder(
      path, {.name = "tokens", .version = kVersion, .parameters = parameters, .inputs = before.hash}, context);
  if (folder.is_complete()) {
    folder.remove_work_folder();  // which a run that was killed at its end left
    return open_stage(path);
  }
  encode_all(Encode(config, encoder, context.samples), folder, before, context);
  nlohmann::json files;
  if (!context.helps) files = write_token_files(config, encoder, folder, before, context);
  folder.complete(int64_t(before.shards.size()), context, {{"files", files}});
  folder.remove_work_folder();
  return open_stage(path);
}

}  // namespace weft
