// The rows of a table of tokens.   T tokens, whole on tp   t those of this rank's stream   d width
#pragma once
#include "weft/nn/pass.h"
#include "weft/nn/stream_scale.h"
#include "weft/nn/table_adapter.h"
#include "weft/sharding/boundary.h"

namespace weft {

// table.grad[ids[i]] += rows[i]. Nothing where the table has no gradient.
void add_table_rows(Pass& p, Param& table, Tensor ids, Tensor rows);

// x = scale * table[ids], x [t, d], ids i32 [T]; the rows of a table that has an adapter are those that it makes of
// them, but in passes that leave it out. The table may be cut by rows: a rank then looks up those that it has, and the
// sum over ranks is the result.
class TableRows {
 public:
  using Saved = TableAdapter::Saved;
  // `table` must outlive this.
  TableRows(Param& table, double scale, const LayerPlan& plan, std::optional<TableAdapter> adapter = {});
  void forward(Pass& p, Saved& s, Tensor ids, Tensor x) const;
  void wgrad(Pass& p, const Saved& s, Tensor ids, Tensor dx) const;  // adds to the table's gradient, or the adapter's
  Param& table() const { return *table_; }

 private:
  Param* table_;
  Boundary leave_;
  StreamScale scale_;
  std::optional<TableAdapter> adapter_;
};

}  // namespace weft
