#include "weft/data/token_source.h"

#include <cstring>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/data/id_view.h"
#include "weft/data/megatron_index.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class RawTokens final : public TokenSource {
 public:
  RawTokens(const fs::path& path, IdType type, int64_t vocab_size) : file_(path) {
    const int64_t bytes = int64_t(file_.bytes().size()), each = bytes_of(type);
    if (bytes == 0) throw FileError(fmt::format("{}: is empty", path.string()));
    if (bytes % each != 0) {
      throw FileError(
          fmt::format("{}: {} bytes are no whole number of {}-byte ids; is the file truncated, or data.dtype wrong?",
                      path.string(), bytes, each));
    }
    ids_ = {&file_, type, bytes / each, vocab_size};
  }
  int64_t size() const override { return ids_.size; }
  void read(int64_t first, std::span<int32_t> ids) const override { ids_.read(first, ids); }
  int64_t num_documents() const override { return 0; }
  int64_t document_begin(int64_t) const override { return 0; }
  std::string path() const override { return file_.path().string(); }
  std::string fingerprint() const override { return fmt::format("raw{}:{}", bytes_of(ids_.type), hash_of(file_)); }

 private:
  MappedFile file_;
  IdView ids_;
};

class MegatronTokens final : public TokenSource {
 public:
  MegatronTokens(const fs::path& prefix, int64_t vocab_size)
      : index_file_(prefix.string() + ".idx"),
        file_(prefix.string() + ".bin"),
        index_(index_file_.bytes(), int64_t(file_.bytes().size()), index_file_.path().string()),
        ids_{&file_, index_.type(), index_.num_tokens(), vocab_size} {}
  int64_t size() const override { return ids_.size; }
  void read(int64_t first, std::span<int32_t> ids) const override { ids_.read(first, ids); }
  int64_t num_documents() const override { return index_.num_documents(); }
  int64_t document_begin(int64_t document) const override { return index_.document_begin(document); }
  std::string path() const override { return file_.path().string(); }
  std::string fingerprint() const override {
    return fmt::format("megatron:{}:{}", hash_of(file_), hash_of(index_file_));
  }

 private:
  MappedFile index_file_, file_;
  MegatronIndex index_;
  IdView ids_;
};

class MappedMask final : public LossMask {
 public:
  MappedMask(const fs::path& path, const TokenSource& source) : file_(path) {
    const int64_t bytes = int64_t(file_.bytes().size());
    if (bytes != source.size()) {
      throw FileError(fmt::format("{}: {} bytes for the {} tokens of {}; a loss mask has one byte for each",
                                  path.string(), bytes, source.size(), source.path()));
    }
  }
  void read(int64_t first, std::span<uint8_t> counted) const override {
    const int64_t size = int64_t(file_.bytes().size());
    WEFT_CHECK(first >= 0 && first <= size && int64_t(counted.size()) <= size - first, "{} bytes from {} on, of {}",
               counted.size(), first, size);
    if (!counted.empty()) std::memcpy(counted.data(), file_.bytes().data() + first, counted.size());
    if (!counted.empty() && counted.back() == 0) file_.check_whole();  // behind a new end there are zeros
    for (size_t i = 0; i < counted.size(); ++i) {
      if (counted[i] > 1)
        throw FileError(fmt::format("{}: byte {} is {}; a loss mask has 0 and 1", file_.path().string(),
                                    first + int64_t(i), counted[i]));
    }
  }
  std::string fingerprint() const override { return "mask:" + hash_of(file_); }

 private:
  MappedFile file_;
};

fs::path without_suffix(fs::path prefix) {
  if (prefix.extension() == ".bin" || prefix.extension() == ".idx") prefix.replace_extension();
  return prefix;
}

}  // namespace

std::unique_ptr<TokenSource> open_raw_tokens(const fs::path& file, const std::string& dtype, int64_t vocab_size) {
  return std::make_unique<RawTokens>(file, id_type_named(dtype), vocab_size);
}

std::unique_ptr<TokenSource> open_megatron_tokens(const fs::path& prefix, int64_t vocab_size) {
  return std::make_unique<MegatronTokens>(without_suffix(prefix), vocab_size);
}

bool is_megatron(const fs::path& file) {
  const fs::path prefix = without_suffix(file);
  std::error_code ignored;
  // A text is what its name says, even if somebody's pair is called after it.
  if (prefix == file && fs::is_regular_file(file, ignored)) return false;
  return fs::is_regular_file(prefix.string() + ".idx", ignored) &&
         fs::is_regular_file(prefix.string() + ".bin", ignored);
}

std::unique_ptr<LossMask> open_loss_mask(const fs::path& file, const TokenSource& source) {
  return std::make_unique<MappedMask>(file, source);
}

}  // namespace weft
