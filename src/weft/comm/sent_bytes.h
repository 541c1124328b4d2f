// What a rank sends to each other one, by axis, as it sends it.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "weft/comm/process_mesh.h"

namespace weft {

// Counts what calls send, as Traffic does: of a collective of n ranks, what leaves this rank, in equal parts for the
// n - 1 others. That is where it goes: no engine forms rings, each rank gives every other one its share itself (a
// tensor that is small may go whole).
class SentBytes {
 public:
  // The same mesh, which adds to this; this must outlive it.
  ProcessMesh counted(const ProcessMesh& mesh);
  void clear();  // what was counted
  // What all ranks have counted: {"world": W, "axes": [{"axis", "groups", "calls", "collectives", "messages"}]}, where
  // `calls` and bytes of `collectives` are by world rank, and messages are [from, to, bytes]; axes without calls are
  // left out. Of a mesh that was counted, on every rank; collective over `world`, a communicator of that mesh or not.
  // Only rank 0 has the result.
  nlohmann::json wait_gather(Communicator& world) const;

  struct Count {
    int size = 1;
    int64_t calls = 0, collectives = 0;
    std::vector<int64_t> messages = {};  // to each rank of the group
  };

 private:
  MeshSizes sizes_;
  std::vector<std::shared_ptr<Count>> counts_;  // as ProcessMesh::each
};

// Bytes of a collective that its rank gives to each of the others, in the order from the next rank on: equal but for a
// remainder.
std::vector<int64_t> parts_for_others(int64_t bytes, int others);

}  // namespace weft
