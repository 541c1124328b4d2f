// The one list of cases of every op, small and odd and large, for whatever must hold of every backend:
//   for (const OpCase& c : op_cases(DType::f32)) {
//     auto trial = c.make();
//     trial->run(backend), trial->run_exact(ref);
//     EXPECT_EQ(trial->difference(), "") << c.name;
//   }
// Placements are those of one rank with an Invariant stream: rules::check passes every case.
#pragma once
#include "ops/trial.h"

namespace weft::testing {

// f64, f32, bf16 or f16. Contiguous operands, and matrices whose rows lie apart.
OpCases op_cases(DType compute);

// Each op at the size it has in training a model of 8 layers, d 512, 8 heads of which 4 of keys, f 1376, on 4 x 512
// tokens: to time, with cost() for rates. Sizes are those of no case above; they are right as well.
OpCases timed_cases(DType compute);

}  // namespace weft::testing
