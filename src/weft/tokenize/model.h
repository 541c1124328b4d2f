// The part of a tokenizer that gives ids to a piece of text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/tokenize/best_path.h"
#include "weft/tokenize/piece_cache.h"

namespace weft {

// Tokens and their ids, both ways. Ids may have gaps. Immutable once built; any thread may then use it.
class Vocabulary {
 public:
  static constexpr size_t kMaxTokens = 1 << 24;
  // `source` begins messages.
  explicit Vocabulary(std::string source) : source_(std::move(source)) {}

  // Throws FileError where the id is taken, or negative, or far beyond the number of tokens (`expected`: how many there
  // will be, about), so that a small file cannot ask for much memory. Only what is `findable` is found by find().
  void add(std::string_view token, int64_t id, size_t expected, bool findable = true);

  // -1: there is none.
  int32_t find(std::string_view token) const;
  bool has(int64_t id) const { return id >= 0 && id < size() && places_[size_t(id)].begin != kNone; }
  // `id` must be one that it has.
  std::string_view token(int32_t id) const;
  // One more than the largest id.
  int64_t size() const { return int64_t(places_.size()); }
  int64_t num_tokens() const { return num_tokens_; }
  size_t longest() const { return longest_; }  // in bytes

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Place {
    uint32_t begin = kNone, bytes = 0;
  };
  void index(std::string_view token, int32_t id);

  std::string source_, text_;
  std::vector<Place> places_;   // by id
  std::vector<int32_t> table_;  // a hash table of ids; -1: free
  int64_t num_tokens_ = 0, num_found_ = 0;
  size_t longest_ = 0;
};

// What encoding needs besides the model: lent to one call at a time.
struct EncodeSpace {
  PieceCaches caches;
  BestPathSpace<double> path;
};

// Immutable; any thread may use it.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual const Vocabulary& vocabulary() const = 0;
  // Appends the ids of a piece that is not empty. Deterministic, whatever `space` was used for before.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids, EncodeSpace& space) const = 0;
  // Whether pieces are bytes (of any value) rather than text.
  virtual bool of_bytes() const { return false; }
};

}  // namespace weft
