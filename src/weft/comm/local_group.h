// Ranks as threads of one process: each reads its peers' memory directly. Ranks that meet in different collectives, or
// wait for each other without end, all throw a CommError that says who was where, within five seconds.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/comm/rank_watch.h"

namespace weft {

// A communicator for each of `size` threads. A rank that dies must call `abort`, or the others wait for it for ever.
class LocalGroup {
 public:
  // `watch`: of all the ranks that these are among; none: of these alone.
  explicit LocalGroup(int size, std::shared_ptr<RankWatch> watch = nullptr);
  ~LocalGroup();
  Communicator& rank(int r);           // to be used by one thread
  void seat(int r, int world_rank);    // who sits there, for messages; before any call
  void abort(const std::string& why);  // every rank that waits, now or later, throws CommError

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
