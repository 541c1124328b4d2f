// Keys and values of latent attention, vectorised; rows at a time.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void latent_keys(const LatentKeys& op, Range rows);
void latent_keys_backward(const LatentKeysBackward& op, Range rows);

}  // namespace weft::cpu
