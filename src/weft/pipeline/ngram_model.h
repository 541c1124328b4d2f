// A small language model of bytes, to tell text from what is none.
#pragma once
#include <cstdint>
#include <filesystem>
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

  // Mean perplexity per byte over the first 64 KiB; 1 for an empty text.
  double perplexity(std::string_view text) const;
  int order() const { return order_; }

 private:
  struct Entry {
    uint32_t count = 0;            // of this sequence
    uint32_t total = 0, next = 0;  // of those one byte longer: all, and different ones
    double p = 1;                  // of the last byte, after the ones before it
  };
  // Entries by sequence: up to 7 bytes and, in the highest one, how many. What most searches want lies beside the key.
  class Table {
   public:
    struct Head {
      uint64_t key = UINT64_MAX;  // of no sequence
      double bits = 0;            // -log2 p
    };
    Table() { grow(1024); }
    void reserve(size_t num_entries);
    Entry& operator[](uint64_t key);  // until the next one is added
    // Null: it is not there.
    const Head* find(uint64_t key) const {
      const Head& head = heads_[place_of(key)];
      return head.key == key ? &head : nullptr;
    }
    const Entry& entry_of(const Head& head) const { return entries_[size_t(&head - heads_.data())]; }
    void prefetch(uint64_t key) const { __builtin_prefetch(&heads_[first_place(key)]); }
    // Calls take(head, entry) for each.
    template <class Take>
    void for_each(const Take& take) {
      for (size_t i = 0; i < heads_.size(); ++i)
        if (heads_[i].key != Head().key) take(heads_[i], entries_[i]);
    }
    template <class Take>
    void for_each(const Take& take) const {
      for (size_t i = 0; i < heads_.size(); ++i)
        if (heads_[i].key != Head().key) take(heads_[i], entries_[i]);
    }

   private:
    size_t first_place(uint64_t key) const { return size_t(key * 0x9e3779b97f4a7c15u >> shift_); }
    size_t place_of(uint64_t key) const {
      size_t i = first_place(key);
      while (heads_[i].key != key && heads_[i].key != Head().key) i = (i + 1) & (heads_.size() - 1);
      return i;
    }
    void grow(size_t places);

    std::vector<Head> heads_;
    std::vector<Entry> entries_;
    size_t size_ = 0;
    int shift_ = 0;
  };

  // Totals and probabilities, from the counts.
  void sum_up();
  void set_probabilities(size_t size);
  // -log2 P of a byte that is the lowest of `history`. `known`: of the bytes before it, how many the model has seen in
  // a row; then, with this byte.
  double bits_of(uint64_t history, size_t& known) const;

  int order_;
  Table entries_;
};

}  // namespace weft
