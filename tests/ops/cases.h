// The one list of cases of every op, small and odd and large, for whatever must hold of every backend:
//   for (const OpCase& c : op_cases(DType::f32)) {
//     auto trial = c.make();
//     trial->run(backend), trial->run_exact(ref);
//     EXPECT_EQ(trial->difference(), "") << c.name;
//   }
// Placements are those of one rank with an Invariant stream: rules::check passes every case.
#pragma once
#include "ops/cases_attention.h"
#include "ops/cases_matrix.h"
#include "ops/cases_norm.h"
#include "ops/cases_pointwise.h"
#include "ops/cases_update.h"

namespace weft::testing {

// f64, f32 or bf16. Contiguous operands, and matrices whose rows lie apart.
inline OpCases op_cases(DType compute) {
  OpCases all;
  for (int64_t gap : {0, 3}) {
    const Variant v{compute, gap};
    add_products(all, v);
    add_bias_grads(all, v);
    add_tables(all, v);
    add_norms(all, v);
    add_head_norms(all, v);
    add_attentions(all, v);
    add_ropes(all, v);
    add_activations(all, v);
    add_dropouts(all, v);
    add_cross_entropies(all, v);
    add_sums_and_copies(all, v);
    if (gap > 0) continue;
    add_reductions(all, v);
    add_updates(all, v);
  }
  return all;
}

}  // namespace weft::testing
