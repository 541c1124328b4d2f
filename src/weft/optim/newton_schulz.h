// The orthogonal matrix nearest to a matrix, roughly.
#pragma once
#include "weft/device/arena.h"
#include "weft/ops/backend.h"

namespace weft {

// Replaces x = U S V^T (its singular value decomposition) by about U V^T: by U f(S) V^T, where f in 5 steps brings
// every singular value of at least ||x||_F / 500 into [0.68, 1.21].
//   x = x / (||x||_F + 1e-7);   `steps` times   x = 3.4445 x + (-4.7750 (x x^T) + 2.0315 (x x^T)^2) x
// (x^T x on the other side where x is tall).              Jordan et al. 2024, "Muon: an optimizer for hidden layers"
//
// x [m, n] f32 or f64, contiguous, whole. Its own and the backend's numbers decide the bits, nothing else. Takes from
// `scratch`, till it returns, a matrix like x and two [min(m, n), min(m, n)]. Blocks.
void wait_orthogonalize(Backend& backend, Arena& scratch, Tensor x, int64_t steps);

}  // namespace weft
