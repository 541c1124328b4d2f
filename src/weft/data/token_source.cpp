#include "weft/data/token_source.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

enum class IdType : uint8_t { u8, i8, i16, i32, i64, u16, u32 };
constexpr int64_t kIdBytes[] = {1, 1, 2, 4, 8, 2, 4};

// Ids in a mapped file, from `begin` on.
struct IdView {
  const MappedFile* file = nullptr;
  IdType type = IdType::u16;
  int64_t begin = 0, size = 0, vocab_size = 0;

  template <class T>
  void copy(int64_t first, std::span<int32_t> ids) const {
    const std::byte* from = file->bytes().data() + begin + first * int64_t(sizeof(T));
    for (size_t i = 0; i < ids.size(); ++i) {
      T id;
      std::memcpy(&id, from + i * sizeof(T), sizeof(T));
      const bool fits = std::cmp_greater_equal(id, 0) && std::cmp_less_equal(id, std::numeric_limits<int32_t>::max());
      if (!fits || (vocab_size > 0 && std::cmp_greater_equal(id, vocab_size))) fail(first + int64_t(i), int64_t(id));
      ids[i] = int32_t(id);
    }
  }
  void read(int64_t first, std::span<int32_t> ids) const {
    WEFT_CHECK(first >= 0 && first + int64_t(ids.size()) <= size, "tokens [{}, {}) of {}", first,
               first + int64_t(ids.size()), size);
    switch (type) {
      case IdType::u8:
        return copy<uint8_t>(first, ids);
      case IdType::i8:
        return copy<int8_t>(first, ids);
      case IdType::i16:
        return copy<int16_t>(first, ids);
      case IdType::i32:
        return copy<int32_t>(first, ids);
      case IdType::i64:
        return copy<int64_t>(first, ids);
      case IdType::u16:
        return copy<uint16_t>(first, ids);
      case IdType::u32:
        return copy<uint32_t>(first, ids);
    }
  }
  [[noreturn]] void fail(int64_t token, int64_t id) const {
    throw FileError(fmt::format(
        "{}: token {} at byte {} is {}, but the model's vocabulary has {} ids; is the file of another tokenizer, or "
        "data.dtype wrong?",
        file->path().string(), token, begin + token * kIdBytes[size_t(type)], id, vocab_size));
  }
};

std::string hash_of(const MappedFile& file) {
  constexpr size_t kPiece = 1 << 20;
  const auto bytes = file.bytes();
  XXH64_state_t* state = XXH64_createState();
  XXH64_reset(state, bytes.size());
  for (size_t at : {size_t(0), bytes.size() / 2, bytes.size() - std::min(bytes.size(), kPiece)}) {
    XXH64_update(state, bytes.data() + at, std::min(kPiece, bytes.size() - at));
  }
  const uint64_t hash = XXH64_digest(state);
  XXH64_freeState(state);
  return fmt::format("{}:{:016x}", bytes.size(), hash);
}

class RawTokens final : public TokenSource {
 public:
  RawTokens(const fs::path& path, IdType type, int64_t vocab_size) : file_(path) {
    const int64_t bytes = int64_t(file_.bytes().size()), each = kIdBytes[size_t(type)];
    if (bytes == 0) throw FileError(fmt::format("{}: is empty", path.string()));
    if (bytes % each != 0) {
      throw FileError(
          fmt::format("{}: {} bytes are no whole number of {}-byte ids; is the file truncated, or data.dtype wrong?",
                      path.string(), bytes, each));
    }
    ids_ = {&file_, type, 0, bytes / each, vocab_size};
  }
  int64_t size() const override { return ids_.size; }
  void read(int64_t first, std::span<int32_t> ids) const override { ids_.read(first, ids); }
  int64_t num_documents() const override { return 1; }
  std::string path() const override { return file_.path().string(); }
  std::string fingerprint() const override {
    return fmt::format("raw{}:{}", kIdBytes[size_t(ids_.type)], hash_of(file_));
  }

 private:
  MappedFile file_;
  IdView ids_;
};

// Numbers of the index, each checked to lie in the file before it is read.
class IndexReader {
 public:
  explicit IndexReader(const MappedFile& file) : file_(file) {}
  template <class T>
  T next(const char* what) {
    T value;
    std::memcpy(&value, take(int64_t(sizeof(T)), what), sizeof(T));
    return value;
  }
  const std::byte* array(uint64_t count, int64_t each, const char* what) {
    const int64_t left = int64_t(file_.bytes().size()) - at_;
    if (count > uint64_t(left) / uint64_t(each))
      fail(fmt::format("{} claims {} entries; {} bytes are left", what, count, left));
    return take(int64_t(count) * each, what);
  }
  void finish() const {
    if (at_ != int64_t(file_.bytes().size()))
      fail(fmt::format("{} bytes follow its end", int64_t(file_.bytes().size()) - at_));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: no valid index: {}", file_.path().string(), what));
  }

 private:
  const std::byte* take(int64_t bytes, const char* what) {
    if (bytes > int64_t(file_.bytes().size()) - at_) fail(fmt::format("it ends within {}", what));
    const std::byte* here = file_.bytes().data() + at_;
    at_ += bytes;
    return here;
  }
  const MappedFile& file_;
  int64_t at_ = 0;
};

constexpr char kMagic[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};

IdType id_type_of(uint8_t code, const IndexReader& reader) {
  switch (code) {
    case 1:
      return IdType::u8;
    case 2:
      return IdType::i8;
    case 3:
      return IdType::i16;
    case 4:
      return IdType::i32;
    case 5:
      return IdType::i64;
    case 8:
      return IdType::u16;
    case 6:
    case 7:
      reader.fail(fmt::format("dtype {} is a float: these are no token ids", code));
    default:
      reader.fail(fmt::format("no dtype {}", code));
  }
}

template <class T>
T element(const std::byte* array, uint64_t i) {
  T value;
  std::memcpy(&value, array + i * sizeof(T), sizeof(T));
  return value;
}

class MegatronTokens final : public TokenSource {
 public:
  MegatronTokens(const fs::path& prefix, int64_t vocab_size)
      : index_(prefix.string() + ".idx"), file_(prefix.string() + ".bin") {
    IndexReader reader(index_);
    if (std::memcmp(reader.array(sizeof kMagic, 1, "the magic number"), kMagic, sizeof kMagic) != 0)
      reader.fail("it does not begin with MMIDIDX");
    if (const auto version = reader.next<uint64_t>("the version"); version != 1)
      reader.fail(fmt::format("version {}; 1 is known", version));
    const IdType type = id_type_of(reader.next<uint8_t>("the dtype"), reader);
    const uint64_t sequences = reader.next<uint64_t>("the number of sequences"),
                   documents = reader.next<uint64_t>("the number of documents");
    const std::byte* sizes = reader.array(sequences, 4, "the list of sizes");
    const std::byte* offsets = reader.array(sequences, 8, "the list of offsets");
    const std::byte* bounds = reader.array(documents, 8, "the list of documents");
    reader.finish();
    check(reader, {sizes, offsets, bounds, sequences, documents}, type);
    ids_ = {&file_, type, 0, total_, vocab_size};
    documents_ = documents > 0 ? int64_t(documents) - 1 : 0;
  }
  int64_t size() const override { return ids_.size; }
  void read(int64_t first, std::span<int32_t> ids) const override { ids_.read(first, ids); }
  int64_t num_documents() const override { return documents_; }
  std::string path() const override { return file_.path().string(); }
  std::string fingerprint() const override { return fmt::format("megatron:{}:{}", hash_of(file_), hash_of(index_)); }

 private:
  struct Lists {
    const std::byte *sizes, *offsets, *bounds;
    uint64_t sequences, documents;
  };
  // Sequences lie one after the other and fill the file; documents are runs of them.
  void check(const IndexReader& reader, const Lists& l, IdType type) {
    const int64_t each = kIdBytes[size_t(type)], bytes = int64_t(file_.bytes().size());
    for (uint64_t i = 0; i < l.sequences; ++i) {
      const int32_t size = element<int32_t>(l.sizes, i);
      const int64_t offset = element<int64_t>(l.offsets, i);
      if (size < 0 || offset != total_ * each)
        reader.fail(fmt::format("sequence {} (size {}, offset {}) does not follow the one before", i, size, offset));
      total_ += size;
      if (total_ > bytes / each)
        reader.fail(fmt::format("sequence {} ends at byte {} of a {}-byte .bin file", i, total_ * each, bytes));
    }
    if (total_ * each != bytes)
      reader.fail(fmt::format("its sequences have {} bytes, the .bin file {}", total_ * each, bytes));
    int64_t last = 0;
    for (uint64_t i = 0; i < l.documents; ++i) {
      const int64_t bound = element<int64_t>(l.bounds, i);
      if (bound < last || bound > int64_t(l.sequences) || (i == 0 && bound != 0))
        reader.fail(fmt::format("document {} begins at sequence {}", i, bound));
      last = bound;
    }
  }
  MappedFile index_, file_;
  IdView ids_;
  int64_t total_ = 0, documents_ = 0;
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
    const auto from = file_.bytes().subspan(size_t(first), counted.size());
    for (size_t i = 0; i < counted.size(); ++i) {
      counted[i] = uint8_t(from[i]);
      if (counted[i] > 1)
        throw FileError(fmt::format("{}: byte {} is {}; a loss mask has 0 and 1", file_.path().string(),
                                    first + int64_t(i), counted[i]));
    }
  }

 private:
  MappedFile file_;
};

fs::path without_suffix(fs::path prefix) {
  if (prefix.extension() == ".bin" || prefix.extension() == ".idx") prefix.replace_extension();
  return prefix;
}

IdType named_type(const std::string& dtype) {
  if (dtype == "uint16") return IdType::u16;
  if (dtype == "uint32") return IdType::u32;
  if (dtype == "int32") return IdType::i32;
  throw ConfigError(fmt::format("token dtype \"{}\": there are uint16 and uint32", dtype));
}

void put(std::ofstream& out, int64_t value, int64_t bytes) { out.write(reinterpret_cast<const char*>(&value), bytes); }

void write_ids(const fs::path& file, std::span<const std::span<const int32_t>> runs, int64_t each) {
  std::ofstream out(file, std::ios::binary);
  for (const auto& run : runs)
    for (int32_t id : run) put(out, id, each);
  out.flush();
  if (!out) throw FileError(fmt::format("{}: cannot be written; is the disk full?", file.string()));
}

}  // namespace

std::unique_ptr<TokenSource> open_raw_tokens(const fs::path& file, const std::string& dtype, int64_t vocab_size) {
  return std::make_unique<RawTokens>(file, named_type(dtype), vocab_size);
}

std::unique_ptr<TokenSource> open_megatron_tokens(const fs::path& prefix, int64_t vocab_size) {
  return std::make_unique<MegatronTokens>(without_suffix(prefix), vocab_size);
}

bool is_megatron(const fs::path& file) {
  const std::string prefix = without_suffix(file).string();
  return fs::is_regular_file(prefix + ".idx") && fs::is_regular_file(prefix + ".bin");
}

std::unique_ptr<LossMask> open_loss_mask(const fs::path& file, const TokenSource& source) {
  return std::make_unique<MappedMask>(file, source);
}

void write_raw_tokens(const fs::path& file, std::span<const int32_t> ids, const std::string& dtype) {
  const std::span<const int32_t> runs[] = {ids};
  write_ids(file, runs, kIdBytes[size_t(named_type(dtype))]);
}

void write_megatron_tokens(const fs::path& prefix, const std::vector<std::vector<int32_t>>& documents,
                           const std::string& dtype) {
  const IdType type = named_type(dtype);
  if (type == IdType::u32) throw ConfigError("Megatron files have no uint32; use int32");
  const int64_t each = kIdBytes[size_t(type)];
  const std::vector<std::span<const int32_t>> runs(documents.begin(), documents.end());
  write_ids(prefix.string() + ".bin", runs, each);
  std::ofstream out(prefix.string() + ".idx", std::ios::binary);
  out.write(kMagic, sizeof kMagic);
  put(out, 1, 8);
  put(out, type == IdType::u16 ? 8 : 4, 1);
  put(out, int64_t(documents.size()), 8);
  put(out, int64_t(documents.size()) + 1, 8);
  for (const auto& d : documents) put(out, int64_t(d.size()), 4);
  int64_t offset = 0;
  for (const auto& d : documents) put(out, offset, 8), offset += int64_t(d.size()) * each;
  for (int64_t i = 0; i <= int64_t(documents.size()); ++i) put(out, i, 8);
  out.flush();
  if (!out) throw FileError(fmt::format("{}.idx: cannot be written; is the disk full?", prefix.string()));
}

}  // namespace weft
