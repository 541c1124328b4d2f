// Clusters of equal and similar documents, built pair by pair.
#pragma once
#include <cstdint>
#include <filesystem>
#include <unordered_map>
#include <vector>

#include "weft/base/hashing.h"
#include "weft/pipeline/sorted_runs.h"

namespace weft {

// Similarity of sets of words' sequences, without comparing every pair.     Broder 1997; Leskovec et al., chapter 3
// Immutable; any thread may use it.
class MinHash {
 public:
  MinHash(int64_t bands, int64_t rows);
  // One key for each band of a set that is not empty: two sets of Jaccard similarity s share the key of a band with
  // probability s^rows.
  std::vector<Hash128> band_keys(const std::vector<uint64_t>& shingles) const;

 private:
  int64_t bands_, rows_;
  std::vector<uint64_t> factors_, offsets_;  // of each hash function
};

// A set of shingles as it is kept for comparison: 32 bits of each, sorted, each once.
std::vector<uint32_t> shingle_set(const std::vector<uint64_t>& shingles);
// Size of the intersection over size of the union; 1 for two empty sets.
double jaccard(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);

// Why two documents count as the same: a higher value is weaker evidence.
enum class Same : uint8_t { kText, kUrl, kNear };

// A dropped document, the one kept for it, and why. If others link them, the highest reason and the least Jaccard on
// the way: if B is near A and C equals B, both are near A.
struct Duplicate {
  uint64_t document = 0, kept = 0;
  Same same = Same::kText;
  double jaccard = 1;
};

// Documents that are the same, directly or through others, are one cluster; its first document is kept. Memory grows
// with the number of documents in clusters. Pairs come in the order of Same, so that each way is the best there is.
class Clusters {
 public:
  void join(uint64_t a, uint64_t b, Same same, double jaccard);
  // The first document of its cluster.
  uint64_t first_of(uint64_t document) const;
  bool is_dropped(uint64_t document) const { return first_of(document) != document; }
  // In the order of the documents.
  std::vector<Duplicate> duplicates() const;

 private:
  struct Node {
    uint64_t parent = 0;
    Same same = Same::kText;  // why it is joined to its parent; with `jaccard`, of the path there
    double jaccard = 1;
  };
  Node& node(uint64_t document);
  Node to_first(uint64_t document) const;  // the whole way

  mutable std::unordered_map<uint64_t, Node> nodes_;
};

// The keys of one shard's documents, and the shingles of each, on disk.
class ShingleFiles {
 public:
  explicit ShingleFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path file_of(int64_t shard) const;
  // The set of a document, at the place that its records tell.
  std::vector<uint32_t> load(uint64_t document, uint64_t place) const;

 private:
  std::filesystem::path folder_;
};

// The documents of one band that share a key, one after the other: compares each with those before it that were like
// none (up to 32 of them), and joins those that are similar.
class BandGroup {
 public:
  BandGroup(Clusters& clusters, const ShingleFiles& shingles, double threshold)
      : clusters_(clusters), shingles_(shingles), threshold_(threshold) {}
  void begin(const KeyRecord& first);
  void add(const KeyRecord& record);

 private:
  struct Member {
    KeyRecord record;
    std::vector<uint32_t> set;  // empty: not loaded yet
  };
  Clusters& clusters_;
  const ShingleFiles& shingles_;
  double threshold_;
  std::vector<Member> members_;
};

}  // namespace weft
