#include "weft/data/megatron_index.h"

#include <cstring>

#include "weft/base/error.h"

namespace weft {
namespace {

template <class T>
T element(const std::byte* list, int64_t i) {
  T value;
  std::memcpy(&value, list + i * int64_t(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

MegatronIndex::MegatronIndex(std::span<const std::byte> bytes, int64_t bin_bytes, std::string source)
    : rest_(bytes), source_(std::move(source)) {
  if (std::memcmp(take_list(sizeof kMegatronMagic, 1, "the magic number"), kMegatronMagic, sizeof kMegatronMagic) != 0)
    fail("it does not begin with MMIDIDX");
  if (const auto version = next<uint64_t>("the version"); version != kMegatronVersion)
    fail(fmt::format("version {}; 1 is known", version));
  set_type(next<uint8_t>("the dtype"));
  const auto sequences = next<uint64_t>("the number of sequences");
  const auto bounds = next<uint64_t>("the number of documents");
  sizes_ = take_list(sequences, 4, "the list of sizes");
  offsets_ = take_list(sequences, 8, "the list of offsets");
  bounds_ = take_list(bounds, 8, "the list of documents");
  if (!rest_.empty()) fail(fmt::format("{} bytes follow its end", rest_.size()));
  sequences_ = int64_t(sequences);  // both are below the size of the file by now
  judge_sequences(bin_bytes);
  judge_documents(int64_t(bounds));
}

int64_t MegatronIndex::document_begin(int64_t document) const {
  WEFT_CHECK(document >= 0 && document <= documents_, "document {} of {}", document, documents_);
  if (documents_ == 0) return 0;
  const int64_t sequence = element<int64_t>(bounds_, document);
  return sequence == sequences_ ? tokens_ : element<int64_t>(offsets_, sequence) / bytes_of(type_);
}

template <class T>
T MegatronIndex::next(const char* what) {
  return element<T>(take_list(1, sizeof(T), what), 0);
}

const std::byte* MegatronIndex::take_list(uint64_t count, uint64_t each, const char* what) {
  if (count > rest_.size() / each) {
    if (count == 1 || each == 1) fail(fmt::format("it ends within {}", what));
    fail(fmt::format("{} has {} entries of {} bytes, but {} bytes are left", what, count, each, rest_.size()));
  }
  const std::byte* here = rest_.data();
  rest_ = rest_.subspan(size_t(count * each));
  return here;
}

void MegatronIndex::set_type(uint8_t code) {
  constexpr IdType kTypes[] = {IdType::u8, IdType::i8, IdType::i16, IdType::i32, IdType::i64};
  if (code == 6 || code == 7) fail(fmt::format("dtype {} is a float: these are no token ids", code));
  if (code == kMegatronUint16)
    type_ = IdType::u16;
  else if (code >= 1 && code <= 5)
    type_ = kTypes[code - 1];
  else
    fail(fmt::format("there is no dtype {}", code));
}

// Sequences lie one after the other and fill the .bin file: so a pair of which one half is truncated, or of another
// data set, is found out at once.
void MegatronIndex::judge_sequences(int64_t bin_bytes) {
  const int64_t each = bytes_of(type_), room = bin_bytes / each;
  for (int64_t i = 0; i < sequences_; ++i) {
    const int64_t size = element<int32_t>(sizes_, i), offset = element<int64_t>(offsets_, i);
    if (size < 0) fail(fmt::format("sequence {} has {} tokens", i, size));
    if (offset != tokens_ * each)
      fail(fmt::format("sequence {} begins at byte {}, but the one before ends at {}", i, offset, tokens_ * each));
    if (size > room - tokens_)
      fail(fmt::format("sequence {} ends at byte {}, but the .bin file has {}; is one of them truncated?", i,
                       (tokens_ + size) * each, bin_bytes));
    tokens_ += size;
  }
  if (tokens_ * each != bin_bytes)
    fail(fmt::format("its sequences have {} bytes, the .bin file {}; are they of one data set?", tokens_ * each,
                     bin_bytes));
}

// Document d is sequences [bound d, bound d + 1).
void MegatronIndex::judge_documents(int64_t bounds) {
  int64_t last = 0;
  for (int64_t i = 0; i < bounds; ++i) {
    const int64_t bound = element<int64_t>(bounds_, i);
    if (bound < last || bound > sequences_ || (i == 0 && bound != 0))
      fail(fmt::format("document {} begins at sequence {} of {}, the one before at {}", i, bound, sequences_, last));
    last = bound;
  }
  if (bounds > 0 && last != sequences_)
    fail(fmt::format("its last document ends at sequence {} of {}; the rest is in none", last, sequences_));
  documents_ = bounds > 0 ? bounds - 1 : 0;
}

void MegatronIndex::fail(const std::string& what) const {
  throw FileError(fmt::format("{}: no valid index: {}", source_, what));
}

}  // namespace weft
