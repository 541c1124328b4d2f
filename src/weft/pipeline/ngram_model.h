// A small language model of bytes, to tell text from what is none.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

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
  void sum_up();

  int order_;
  std::unordered_map<uint64_t, Entry> entries_;  // up to 7 bytes and, in the highest one, how many
};

}  // namespace weft
