#include "weft/sharding/rows_to_save.h"

namespace weft {

Run rows_to_save(const ParamStore& params, const Param& p, const ParamStore::Stored& block) {
  const ReplicaGroup& group = params.group_of(p);
  const RankOf replica = group.replica(), alike = group.alike(p.parts()[size_t(block.part)].held);
  return share_of(block.rows.count, {replica.size * alike.size, replica.rank * alike.size + alike.rank});
}

}  // namespace weft
