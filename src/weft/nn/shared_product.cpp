#include "weft/nn/shared_product.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/sharding/text_ranks.h"

namespace weft {

void multiply_shared(Pass& p, const Matmul& product) {
  WEFT_CHECK(product.trans_b && !product.accumulate, "not a product with W^T that overwrites");
  if (!p.shares_from) return p.be.run(product);
  const Run mine = columns_of_rank(p.mesh, product.n());
  const int64_t spared = (product.n() - mine.count) * product.k() * size_of(product.b.dtype);
  if (spared < std::max<int64_t>(1, *p.shares_from)) return p.be.run(product);
  Scope temporaries(*p.scratch);
  const int64_t rows = product.m();
  const Tensor part = p.scratch->alloc(product.out.dtype, {rows, mine.count}, product.out.place);
  p.be.run(Matmul{.a = product.a,
                  .b = product.b.slice_rows(mine.first, mine.count),
                  .out = part,
                  .trans_b = true,
                  .bias = product.bias ? product.bias.slice_rows(mine.first, mine.count) : Tensor()});
  const Tensor all = rows_of_all_keepers(p.mesh, part, *p.scratch);
  for (int64_t first = 0; first < product.n(); first += mine.count)
    p.be.run(Copy{.from = all.slice_rows(first / mine.count * rows, rows).placed(product.out.place),
                  .to = product.out.slice_cols(first, mine.count)});
}

}  // namespace weft
