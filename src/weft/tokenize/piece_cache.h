// The ids of pieces seen before: words repeat, so most pieces of a text are found here.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace weft {

// Holds a bounded number of short pieces of few ids; a new one takes the place of an old one. For one thread.
class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 38, kMaxIds = 5;

  PieceCache() : entries_(kEntries) {}

  static bool takes(std::string_view piece) { return piece.size() <= kMaxBytes; }
  // Appends the ids of a piece that it takes, and says whether it knew them. `hash` is of the piece.
  bool find(std::string_view piece, uint64_t hash, std::vector<int32_t>& ids) const {
    const Entry& e = entries_[hash & (kEntries - 1)];
    if (e.bytes != piece.size() + 1 || std::memcmp(e.piece, piece.data(), piece.size()) != 0) return false;
    ids.insert(ids.end(), e.ids, e.ids + e.num_ids);
    return true;
  }
  void keep(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    if (!takes(piece) || ids.size() > kMaxIds) return;
    Entry& e = entries_[hash & (kEntries - 1)];
    std::memcpy(e.piece, piece.data(), piece.size());
    e.bytes = uint8_t(piece.size() + 1);
    e.num_ids = uint8_t(ids.size());
    std::copy(ids.begin(), ids.end(), e.ids);
  }

 private:
  static constexpr size_t kEntries = 1 << 15;
  struct alignas(64) Entry {
    char piece[kMaxBytes];
    uint8_t bytes = 0;  // one more than the piece has; 0: free
    uint8_t num_ids = 0;
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(Entry) == 64);

  std::vector<Entry> entries_;
};

}  // namespace weft
