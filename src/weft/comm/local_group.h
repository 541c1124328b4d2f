// Ranks as threads of one process: each reads its peers' memory directly.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "weft/comm/process_mesh.h"

namespace weft {

// A communicator for each of `size` threads. A rank that dies must call `abort`, or the others wait for it for ever.
class LocalGroup {
 public:
  explicit LocalGroup(int size);
  ~LocalGroup();
  Communicator& rank(int r);  // to be used by one thread
  void abort();               // every rank that waits, now or later, throws CommError

  struct Shared;  // of the implementation

 private:
  std::shared_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

// Runs body(communicator) on `size` threads and joins them; the first exception of any aborts the group and is
// rethrown.
void run_local(int size, const std::function<void(Communicator&)>& body);
// The same with a mesh of these sizes: a thread for each of sizes.world() ranks.
void run_local(const MeshSizes& sizes, const std::function<void(const ProcessMesh&)>& body);

}  // namespace weft
