#include "weft/data/text_tokens.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = 1 << 20;  // bytes of text tokenized at once

// A file of ids that appears whole or not at all.
class IdsWriter {
 public:
  IdsWriter(fs::path path, bool wide)
      : path_(std::move(path)), temporary_(path_.string() + fmt::format(".tmp{}", getpid())), wide_(wide) {
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) fail("cannot be created");
  }
  IdsWriter(const IdsWriter&) = delete;
  IdsWriter& operator=(const IdsWriter&) = delete;
  ~IdsWriter() {
    if (fd_ >= 0) close(fd_);
    if (!done_) unlink(temporary_.c_str());
  }
  void append(const std::vector<int32_t>& ids) {
    bytes_.clear();
    for (int32_t id : ids) bytes_.append(reinterpret_cast<const char*>(&id), wide_ ? 4 : 2);
    count_ += int64_t(ids.size());
    for (size_t at = 0; at < bytes_.size();) {
      const ssize_t n = write(fd_, bytes_.data() + at, bytes_.size() - at);
      if (n < 0 && errno != EINTR) fail("cannot be written");
      at += size_t(std::max<ssize_t>(n, 0));
    }
  }
  void commit() {
    if (fsync(fd_) != 0) fail("cannot be synced");
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed");
    done_ = true;
  }
  int64_t count() const { return count_; }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw FileError(
        fmt::format("{}: {}: {}; token files are kept beside their text: free space, or make the folder writable",
                    temporary_.string(), what, std::strerror(errno)));
  }
  fs::path path_, temporary_;
  bool wide_, done_ = false;
  int fd_ = -1;
  int64_t count_ = 0;
  std::string bytes_;
};

// What a cache was made of.
nlohmann::json stamp_of(const TextRequest& r) {
  return {{"format", 1},
          {"size", int64_t(fs::file_size(r.text))},
          {"mtime", fs::last_write_time(r.text).time_since_epoch().count()},
          {"text_key", is_jsonl(r.text) ? r.text_key : ""},
          {"tokenizer", r.tokenizer.fingerprint()}};
}

bool is_current(const fs::path& ids, const fs::path& stamp, const nlohmann::json& expected) {
  if (!fs::exists(ids) || !fs::exists(stamp)) return false;
  try {
    const nlohmann::json found = read_json_file(stamp);
    for (const auto& [key, value] : expected.items()) {
      if (!found.is_object() || !found.contains(key) || found[key] != value) return false;
    }
    return found.contains("bytes") && found["bytes"] == int64_t(fs::file_size(ids));
  } catch (const FileError&) {  // a stamp that cannot be read is no stamp
    return false;
  }
}

fs::path cache_base(const TextRequest& r) {
  const fs::path folder = r.text.has_parent_path() ? r.text.parent_path() : fs::path(".");
  const std::string name = fmt::format("{}.{}", r.text.filename().string(), r.tokenizer.fingerprint());
  if (access(folder.c_str(), W_OK) == 0 || r.cache_dir.empty()) return folder / name;
  fs::create_directories(r.cache_dir);
  const std::string where = fs::absolute(r.text).string();
  return r.cache_dir / fmt::format("{:016x}-{}", XXH64(where.data(), where.size(), 0), name);
}

void encode_text(const TextRequest& r, std::string_view text, IdsWriter& out) {
  std::vector<int32_t> ids;
  const size_t piece = r.tokenizer.streams() ? kPiece : std::max<size_t>(text.size(), 1);
  for (size_t at = 0; at < text.size(); at += piece) {
    ids.clear();
    r.tokenizer.encode(text.substr(at, piece), ids);
    out.append(ids);
    if (r.progress) r.progress(double(at + piece) / double(text.size()));
  }
  if (r.tokenizer.end_of_document() >= 0) out.append({r.tokenizer.end_of_document()});
}

void encode_jsonl(const TextRequest& r, std::string_view text, IdsWriter& out) {
  std::vector<int32_t> ids;
  int64_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view row = text.substr(at, end - at);
    at = end + 1;
    ++line;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string source = fmt::format("{}: line {}", r.text.string(), line);
    const nlohmann::json json = parse_json(row, source);
    const std::string document = JsonFields(json, source).string(r.text_key);
    ids.clear();
    r.tokenizer.encode(document, ids);
    if (r.tokenizer.end_of_document() >= 0) ids.push_back(r.tokenizer.end_of_document());
    out.append(ids);
    if (r.progress) r.progress(double(at) / double(text.size()));
  }
}

}  // namespace

bool is_jsonl(const fs::path& file) {
  const std::string extension = file.extension().string();
  return extension == ".jsonl" || extension == ".json" || extension == ".ndjson";
}

TextTokens tokenize_once(const TextRequest& r) {
  const MappedFile file(r.text);
  if (file.text().empty()) throw FileError(fmt::format("{}: is empty", r.text.string()));
  const bool wide = r.tokenizer.vocab_size() > std::numeric_limits<uint16_t>::max() + 1;
  const fs::path base = cache_base(r), ids = base.string() + ".bin", stamp = base.string() + ".json";
  TextTokens result{ids, wide ? "uint32" : "uint16"};
  nlohmann::json expected = stamp_of(r);
  if (is_current(ids, stamp, expected)) return result;
  std::error_code ignored;
  fs::remove(stamp, ignored);  // first: ids without a stamp are never used
  IdsWriter out(ids, wide);
  if (is_jsonl(r.text))
    encode_jsonl(r, file.text(), out);
  else
    encode_text(r, file.text(), out);
  if (out.count() == 0) throw FileError(fmt::format("{}: holds no text", r.text.string()));
  out.commit();
  expected["bytes"] = int64_t(fs::file_size(ids));
  expected["tokens"] = out.count();
  expected["hash"] = fmt::format("{:016x}", XXH64(file.text().data(), file.text().size(), 0));
  const std::string temporary = stamp.string() + fmt::format(".tmp{}", getpid());
  std::ofstream(temporary) << expected.dump(1) << "\n";
  fs::rename(temporary, stamp, ignored);
  return result;
}

}  // namespace weft
