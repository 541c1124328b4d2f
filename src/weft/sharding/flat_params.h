// The weights of one replica set, flattened: each unit's lie in flat tensors, which move, are sharded and updated
// whole.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "weft/sharding/flat_layout.h"

namespace weft {

// What a unit has of a replica set: one collective moves it.
struct FlatParam {
  std::string name;
  int64_t position = 0;             // of the unit in the whole model
  std::vector<Param*> params = {};  // ties included
  int mirrors = -1;  // the flat parameter whose tied weight's second gradient it holds; no values of its own
  FlatLayout layout = {};
  int64_t size() const { return layout.size; }
  bool has_values() const { return mirrors < 0; }
  bool is_copy() const { return params.size() == 1 && params[0]->spec().copy; }
  // The pipeline rank that has it too, or -1: it lies in a unit of its own.
  int twin() const { return has_values() && params.size() == 1 ? params[0]->spec().twin : -1; }
};

struct FlatParams {
  std::deque<FlatParam> all;
  std::vector<std::vector<int>> together;  // flat parameters that layers use at the same time

  // The flat parameters whose values or gradients a flat parameter's ties are.
  std::vector<int> owners_of(int flat) const;
  // Second gradients of tied weights lie as the first, in mirrors. Adds those of `flat`.
  void add_mirrors(int flat);
  // Elements of the buffers for those that are in use at once: one, or two of which one holds the smaller; and one for
  // that which is on its way meanwhile. `ties_stay`: the owner of a tied weight beside any other.
  std::vector<int64_t> buffer_sizes(bool ties_stay) const;
  // Holds at least one of any two that follow each other.
  int64_t largest_neighbour() const;
};

}  // namespace weft
