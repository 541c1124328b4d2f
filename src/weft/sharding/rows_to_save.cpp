#include "weft/sharding/rows_to_save.h"

namespace weft {

Run rows_to_save(const ParamStore& params, const Param& p, const ParamStore::Stored& block) {
  const ProcessMesh& mesh = params.mesh();
  const Spmd held = p.pieces()[size_t(block.piece)].held;
  RankOf keepers;
  const auto times = [&](const Communicator& ranks) {
    keepers = {keepers.size * ranks.size(), keepers.rank * ranks.size() + ranks.rank()};
  };
  times(*mesh.replicas);
  times(mesh[Axis::cp]);
  if (held != Spmd::Shard0 && held != Spmd::Shard1) times(mesh[Axis::tp]);
  return share_of(block.rows.count, keepers);
}

}  // namespace weft
