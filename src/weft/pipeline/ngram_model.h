// A small language model of bytes, to tell text from what is none.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// P(b | c) for contexts of up to order - 1 bytes, each backed by the next shorter one:
//   P(b | c) = (n(c b) + t(c) P(b | c')) / (n(c) + t(c)),  t(c) how many bytes followed c     Witten & Bell 1991
// File: docs/formats/pipeline.md.
class NgramModel {
 public:
  static constexpr int kMostOrder = 7;

  explicit NgramModel(int order) : order_(order) {}
  // Throws FileError.
  static NgramModel read(const std::filesystem::path& file);

  void learn(std::string_view text);
  // After all texts. Forgets sequences of four bytes and more that were seen once: most of a model, and little of what
  // it knows.
  void finish();
  void write(const std::filesystem::path& file) const;

  // Of a byte of the text, in the mean; 1: of an empty one. Looks at the first 64 KiB.
  double perplexity(std::string_view text) const;
  int order() const { return order_; }

 private:
  struct Entry {
    uint32_t count = 0;            // of this sequence
    uint32_t total = 0, next = 0;  // of those one byte longer: all, and different ones
  };
  // Entries by sequence: up to 7 bytes and, in the highest one, how many. Two arrays, so that a search that fails, as
  // most do, looks at keys alone.
  class Table {
   public:
    Table() { grow(1024); }
    void reserve(size_t num_entries);
    Entry& operator[](uint64_t key);  // until the next one is added
    const Entry* find(uint64_t key) const {
      const size_t i = slot_of(key);
      return keys_[i] == key ? &entries_[i] : nullptr;
    }
    void prefetch(uint64_t key) const { __builtin_prefetch(&keys_[first_slot(key)]); }
    // Calls take(key, entry) for each.
    template <class Take>
    void for_each(const Take& take) {
      for (size_t i = 0; i < keys_.size(); ++i)
        if (keys_[i] != kFree) take(keys_[i], entries_[i]);
    }
    template <class Take>
    void for_each(const Take& take) const {
      for (size_t i = 0; i < keys_.size(); ++i)
        if (keys_[i] != kFree) take(keys_[i], entries_[i]);
    }

   private:
    static constexpr uint64_t kFree = UINT64_MAX;  // of no sequence
    size_t first_slot(uint64_t key) const { return size_t(key * 0x9e3779b97f4a7c15u >> shift_); }
    size_t slot_of(uint64_t key) const {
      size_t i = first_slot(key);
      while (keys_[i] != key && keys_[i] != kFree) i = (i + 1) & (keys_.size() - 1);
      return i;
    }
    void grow(size_t slots);

    std::vector<uint64_t> keys_;
    std::vector<Entry> entries_;
    size_t size_ = 0;
    int shift_ = 0;
  };

  void sum_up();

  int order_;
  Table entries_;
};

}  // namespace weft
