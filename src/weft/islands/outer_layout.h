// Which weights islands exchange, and in which order: a function of the model, so that hub and islands agree on it
// without a word.
//   F  fragments
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/sharding/param.h"

namespace weft {

// A fragment is a list of f32: its weights one behind the other, in the order of the model, each row by row. Fragments
// are runs of layers, of about equal sizes: a weight is of fragment min(F - 1, F (b + n / 2) / all), rounded down,
// where b elements come before it and it has n. Weights that no step updates are not exchanged.
class OuterLayout {
 public:
  // Throws ConfigError where a fragment would be empty.
  OuterLayout(const ModelSpec& model, int64_t fragments);

  struct Place {
    int64_t fragment = 0, first = 0;  // element of the fragment
  };
  Place place_of(std::string_view weight) const;                // of its first element
  const std::vector<int64_t>& sizes() const { return sizes_; }  // elements of each fragment
  int64_t num_fragments() const { return int64_t(sizes_.size()); }
  const std::vector<ParamSpec>& weights() const { return weights_; }  // in the order of the model
  // Names, shapes and places as text.
  std::string describe() const;

  // Round t >= 1 exchanges one fragment, all in turn.
  int64_t fragment_of(int64_t round) const { return (round - 1) % num_fragments(); }

 private:
  std::vector<ParamSpec> weights_;
  std::map<std::string, Place, std::less<>> places_;
  std::vector<int64_t> sizes_;
};

}  // namespace weft
