// Random weights.
#pragma once
#include <cstdint>
#include <string_view>

#include "weft/sharding/param_store.h"

namespace weft {

// Writes every master weight by its Init rule. Element i of a weight is a function of (seed, its name, i) alone: the
// same on any layout and any number of threads. A weight in codes gets those of such numbers. Follow with
// masters_changed.
void init_weights(const ParamStore& params, uint64_t seed, int num_threads);
// Those of adapters alone.
void init_adapter(const ParamStore& params, uint64_t seed, int num_threads);
// The magnitudes of a new adapter (nn/magnitude.h), if it has any: the lengths of the base's rows, so that with B = 0
// it changes nothing. Reads values, which must be those of the masters; follow with masters_changed once more.
// Collective over the ranks of `params`. Blocks.
void init_magnitudes(ParamStore& params, Backend& backend);
// The one of this name alone.
void init_weight(const ParamStore& params, std::string_view name, uint64_t seed, int num_threads);

}  // namespace weft
