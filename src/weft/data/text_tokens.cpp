#include "weft/data/text_tokens.h"

#include <unistd.h>
#include <xxhash.h>

#include <limits>
#include <vector>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"
#include "weft/base/parallel.h"
#include "weft/data/jsonl.h"
#include "weft/data/token_writer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = 1 << 20;  // bytes of text tokenized at once

// The files of a cache.
struct Cache {
  fs::path prefix, ids, index, stamp;
};

Cache cache_in(const fs::path& folder, const std::string& name) {
  return {folder / name, folder / (name + ".bin"), folder / (name + ".idx"), folder / (name + ".json")};
}

std::string name_of(const TextRequest& r) {
  return fmt::format("{}.{}", r.text.filename().string(), r.tokenizer.fingerprint());
}

Cache cache_beside(const TextRequest& r) { return cache_in(r.text.parent_path(), name_of(r)); }

// Texts of several folders may have one name: theirs is part of the cache's.
Cache cache_elsewhere(const TextRequest& r) {
  const std::string where = fs::absolute(r.text).string();
  return cache_in(r.cache_dir, fmt::format("{:016x}-{}", XXH64(where.data(), where.size(), 0), name_of(r)));
}

bool is_more(const TextRequest& r) { return r.more.reads && r.more.reads(r.text, r.text_key); }

// What a cache is made of.
nlohmann::json stamp_of(const TextRequest& r, const MappedFile& text) {
  std::error_code why;
  const auto time = fs::last_write_time(r.text, why);
  if (why) throw FileError(fmt::format("{}: {}", r.text.string(), why.message()));
  return {{"format", 3},
          {"mtime", time.time_since_epoch().count()},
          {"text", hash_of(text)},
          {"text_key", is_jsonl(r.text) || is_more(r) ? r.text_key : ""},
          {"tokenizer", r.tokenizer.fingerprint()}};
}

bool is_current(const Cache& cache, nlohmann::json expected) {
  std::error_code ignored;
  if (!fs::exists(cache.ids, ignored) || !fs::exists(cache.stamp, ignored)) return false;
  try {
    expected["ids"] = hash_of(MappedFile(cache.ids));
    expected["index"] = hash_of(MappedFile(cache.index));
    nlohmann::json found = read_json_file(cache.stamp);
    return found == expected;
  } catch (const FileError&) {  // what cannot be read is no cache
    return false;
  }
}

bool is_writable(const fs::path& folder) { return access(folder.empty() ? "." : folder.c_str(), W_OK) == 0; }

Cache place_for(const TextRequest& r) {
  if (r.cache_dir.empty() || is_writable(r.text.parent_path())) return cache_beside(r);
  std::error_code why;
  fs::create_directories(r.cache_dir, why);
  if (why) throw FileError(fmt::format("{}: cannot be created: {}", r.cache_dir.string(), why.message()));
  return cache_elsewhere(r);
}

// Compressed and other binary files, of whatever name, would train a model on noise.
void refuse_binary(const TextRequest& r, std::string_view text) {
  constexpr size_t kEnough = 1 << 16;
  const size_t nul = text.substr(0, kEnough).find('\0');
  const bool gzip = text.starts_with("\x1f\x8b");
  if (nul == std::string_view::npos && !gzip) return;
  const std::string why = gzip ? "is compressed by gzip" : fmt::format("is no text: byte {} is 0", nul);
  throw FileError(fmt::format("{}: {}; {}", r.text.string(), why,
                              gzip ? "decompress it first" : "raw token ids are recognised by the name .bin"));
}

void encode_text(const TextRequest& r, std::string_view text, MegatronWriter& out) {
  std::vector<int32_t> ids = r.tokenizer.beginning();
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    size_t piece = rest.size();
    // Where no place to cut is near, a larger piece has one, or the rest is one piece.
    for (size_t reach = kPiece; reach < rest.size() && piece == rest.size(); reach += kPiece)
      if (const size_t cut = r.tokenizer.cut_between(rest, reach - kPiece, reach); cut > 0) piece = cut;
    r.tokenizer.encode(rest.substr(0, piece), ids, SpecialText::kText, r.num_threads);
    out.append(ids);
    ids.clear();
    at += piece;
    if (r.progress) r.progress(double(at) / double(text.size()));
  }
  if (r.tokenizer.end_of_document() >= 0) out.append({{r.tokenizer.end_of_document()}});
  out.end_document();
}

// Documents that are encoded at the same time, and written in their order.
class Batch {
 public:
  Batch(const TextRequest& request, MegatronWriter& out) : request_(request), out_(out) {}

  void add(std::string_view document) {
    documents_.emplace_back(document);
    bytes_ += document.size();
    if (bytes_ >= kBytes) write();
  }
  void write() {
    std::vector<std::vector<int32_t>> ids(documents_.size());
    parallel_for(int64_t(documents_.size()), request_.num_threads, 1, [&](int64_t begin, int64_t end) {
      for (auto i = size_t(begin); i < size_t(end); ++i) encode(documents_[i], ids[i]);
    });
    for (const auto& of_document : ids) out_.add_document(of_document);
    documents_.clear();
    bytes_ = 0;
  }

 private:
  static constexpr size_t kBytes = 4 << 20;
  void encode(const std::string& document, std::vector<int32_t>& ids) const {
    ids = request_.tokenizer.beginning();
    request_.tokenizer.encode(document, ids);
    if (request_.tokenizer.end_of_document() >= 0) ids.push_back(request_.tokenizer.end_of_document());
  }

  const TextRequest& request_;
  MegatronWriter& out_;
  std::vector<std::string> documents_;
  size_t bytes_ = 0;
};

void encode_jsonl(const TextRequest& r, std::string_view text, MegatronWriter& out) {
  Batch batch(r, out);
  size_t next_report = 0;
  for_each_document({text, r.text.string(), r.text_key}, [&](std::string_view document, size_t done) {
    batch.add(document);
    if (!r.progress || (done < next_report && done < text.size())) return;
    next_report = done + kPiece;
    r.progress(double(done) / double(text.size()));
  });
  batch.write();
}

void encode_more(const TextRequest& r, MegatronWriter& out) {
  Batch batch(r, out);
  double next_report = 0;
  r.more.for_each(r.text, r.text_key, [&](std::string_view document, double done) {
    batch.add(document);
    if (!r.progress || (done < next_report && done < 1)) return;
    next_report = done + 0.01;
    r.progress(done);
  });
  batch.write();
}

}  // namespace

std::optional<fs::path> find_tokenized(const TextRequest& r) {
  const nlohmann::json stamp = stamp_of(r, MappedFile(r.text));
  if (const Cache beside = cache_beside(r); is_current(beside, stamp)) return beside.ids;
  if (r.cache_dir.empty()) return {};
  const Cache elsewhere = cache_elsewhere(r);
  return is_current(elsewhere, stamp) ? std::optional(elsewhere.ids) : std::nullopt;
}

fs::path tokenize_once(const TextRequest& r) {
  const MappedFile file(r.text);
  if (file.text().empty()) throw FileError(fmt::format("{}: is empty", r.text.string()));
  const bool more = is_more(r);
  if (!more) refuse_binary(r, file.text());
  const bool wide = r.tokenizer.vocab_size() > std::numeric_limits<uint16_t>::max() + 1;
  const std::string dtype = wide ? "int32" : "uint16";
  nlohmann::json stamp = stamp_of(r, file);
  if (const Cache beside = cache_beside(r); is_current(beside, stamp)) return beside.ids;
  const Cache cache = place_for(r);
  if (is_current(cache, stamp)) return cache.ids;

  std::error_code ignored;
  fs::remove(cache.stamp, ignored);  // first: ids without a stamp are never used
  MegatronWriter out(cache.prefix, dtype);
  if (more)
    encode_more(r, out);
  else
    is_jsonl(r.text) ? encode_jsonl(r, file.text(), out) : encode_text(r, file.text(), out);
  if (out.size() == 0) throw FileError(fmt::format("{}: holds no text", r.text.string()));
  if (stamp_of(r, MappedFile(r.text)) != stamp)
    throw FileError(fmt::format("{}: was changed while it was read; try again", r.text.string()));
  out.commit();
  stamp["ids"] = hash_of(MappedFile(cache.ids));
  stamp["index"] = hash_of(MappedFile(cache.index));
  write_file_durably(cache.stamp, stamp.dump(1) + "\n", kOwnName);
  return cache.ids;
}

}  // namespace weft
