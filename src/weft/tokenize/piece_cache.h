// The ids of pieces seen before: words repeat, so most pieces of a text are found here.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include <xxhash.h>

namespace weft {

// Holds a bounded number of short pieces with few ids; a new one replaces an old one. For one thread.
class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 15, kMaxIds = 3;

  PieceCache() : entries_(kEntries) {}

  // A piece of at most kMaxBytes, as two numbers: its bytes and, in the last place, how many.
  struct Key {
    uint64_t low, high;
  };
  static bool takes(std::string_view piece) { return piece.size() <= kMaxBytes; }
  static bool takes_ids(std::span<const int32_t> ids) { return !ids.empty() && ids.size() <= kMaxIds; }
  static Key key_of(std::string_view piece) {
    const size_t n = piece.size();
    const char* p = piece.data();
    Key key{0, uint64_t(n) << 56};
    if (n >= 8) {
      key.low = load<uint64_t>(p);
      if (n > 8) key.high |= load<uint64_t>(p + n - 8) >> (8 * (16 - n));
    } else if (n >= 4) {
      key.low = load<uint32_t>(p) | uint64_t(load<uint32_t>(p + n - 4)) >> (8 * (8 - n)) << 32;
    } else {
      for (size_t i = 0; i < n; ++i) key.low |= uint64_t(uint8_t(p[i])) << (8 * i);
    }
    return key;
  }

  // Appends the ids, and says whether it knew them.
  bool find(Key key, std::vector<int32_t>& ids) const {
    const Entry& e = entries_[place_of(key)];
    if (e.key.low != key.low || e.key.high != key.high) return false;
    ids.push_back(e.ids[0]);
    for (uint32_t i = 1; i < e.num_ids; ++i) ids.push_back(e.ids[i]);
    return true;
  }
  void keep(Key key, std::span<const int32_t> ids) {
    if (!takes_ids(ids)) return;
    Entry& e = entries_[place_of(key)];
    e.key = key;
    e.num_ids = uint32_t(ids.size());
    std::copy(ids.begin(), ids.end(), e.ids);
  }

 private:
  static constexpr int kBits = 16;
  static constexpr size_t kEntries = size_t{1} << kBits;
  struct alignas(32) Entry {
    Key key{0, 0};  // of no piece: those have a length
    uint32_t num_ids = 0;
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(Entry) == 32);

  template <class T>
  static T load(const char* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  static size_t place_of(Key key) {
    uint64_t h = (key.low ^ key.high * 0xff51afd7ed558ccdu) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    return size_t(h * 0xc4ceb9fe1a85ec53u >> (64 - kBits));
  }

  std::vector<Entry> entries_;
};

// The same for longer pieces, and for those of more ids, by their hash.
class LongPieceCache {
 public:
  static constexpr size_t kMaxBytes = 78, kMaxIds = 11;

  LongPieceCache() : entries_(kEntries) {}

  static bool takes(std::string_view piece) { return piece.size() <= kMaxBytes; }
  bool find(std::string_view piece, uint64_t hash, std::vector<int32_t>& ids) const {
    const Entry& e = entries_[hash & (kEntries - 1)];
    if (e.bytes != piece.size() || std::memcmp(e.piece, piece.data(), piece.size()) != 0) return false;
    ids.insert(ids.end(), e.ids, e.ids + e.num_ids);
    return true;
  }
  void keep(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    if (ids.empty() || ids.size() > kMaxIds) return;
    Entry& e = entries_[hash & (kEntries - 1)];
    std::memcpy(e.piece, piece.data(), piece.size());
    e.bytes = uint8_t(piece.size());
    e.num_ids = uint8_t(ids.size());
    std::copy(ids.begin(), ids.end(), e.ids);
  }

 private:
  static constexpr size_t kEntries = 1 << 14;
  struct Entry {
    char piece[kMaxBytes];
    uint8_t bytes = 0;  // 0: free
    uint8_t num_ids = 0;
    int32_t ids[kMaxIds];
  };

  std::vector<Entry> entries_;
};

// Both, for pieces of any length. For one thread.
class PieceCaches {
 public:
  // Appends the ids of a piece: those that are known, else those that make() appends.
  template <class Make>
  void encode(std::string_view piece, std::vector<int32_t>& ids, const Make& make) {
    if (!LongPieceCache::takes(piece)) return make();
    const bool is_short = PieceCache::takes(piece);
    const auto key = is_short ? PieceCache::key_of(piece) : PieceCache::Key{};
    if (is_short && short_.find(key, ids)) return;
    const uint64_t hash = XXH3_64bits(piece.data(), piece.size());
    if (long_.find(piece, hash, ids)) return;
    const size_t begin = ids.size();
    make();
    const std::span<const int32_t> made(ids.data() + begin, ids.size() - begin);
    if (is_short && PieceCache::takes_ids(made))
      short_.keep(key, made);
    else
      long_.keep(piece, hash, made);
  }

 private:
  PieceCache short_;
  LongPieceCache long_;
};

}  // namespace weft
