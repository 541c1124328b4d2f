// The part of a tokenizer that gives ids to a piece of text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "weft/tokenize/best_path.h"
#include "weft/tokenize/piece_cache.h"
#include "weft/tokenize/vocabulary.h"

namespace weft {

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
