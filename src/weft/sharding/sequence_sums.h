// Sums over the tokens of each sequence, of which ranks of cp have parts.
#pragma once
#include "weft/sharding/boundary.h"

namespace weft {

// A sum over the rows here is a summand of it; the boundary adds up those of all ranks that share the sequences.
inline Placement summand_of_sequences() { return Placement().with(Axis::cp, Spmd::Partial); }
inline Boundary sum_over_sequences() { return {Axis::cp, Spmd::Partial, Spmd::Invariant}; }

}  // namespace weft
