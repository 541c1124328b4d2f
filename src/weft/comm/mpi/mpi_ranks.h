// Ranks as processes that an MPI launcher has started.
#pragma once
#include <memory>
#include <string>

#include "weft/comm/process_mesh.h"

namespace weft {

// This process's rank among all. One object in a process, for as long as MPI is used: it begins MPI, which cannot begin
// twice. Everything is to be called by one thread, its meshes too, which end before `finish`. Where ranks are on other
// hosts, that thread lends MPI to one of this object's inside kernels (ProcessMesh::lend).
//
// Ranks that meet in different calls, or wait for each other without end, all throw a CommError that says who was
// where, within seconds. So does whoever waits for a rank that failed or, on the same host, is gone or stopped; for
// ranks of other hosts there is a limit to waiting. A process that ends without `finish` or `abort` makes the launcher
// end all.
class MpiRanks {
 public:
  struct Options {
    double timeout_s = 600;          // of waiting without any event on this rank
    double stopped_s = 10;           // of waiting for a rank of this host that a signal has stopped
    bool lends_on_one_host = false;  // lends MPI also where no rank is on another host: for tests
  };
  explicit MpiRanks(const Options& options);
  MpiRanks();
  ~MpiRanks();
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;

  int rank() const;
  int size() const;
  const std::vector<int>& ranks_here() const;  // on this host, this one among them; ascending
  // The mesh of these sizes, whose world is all ranks. Collective: every rank makes the same. It may not outlive this.
  ProcessMesh mesh(const MeshSizes& sizes);
  // Returns when every rank has called it; MPI is over then. Throws CommError where another rank has failed.
  void finish();
  // Tells the others why this rank fails: a CommError to them.
  void tell_failure(const std::string& why) noexcept;
  // Ends the whole job with this status, at once.
  [[noreturn]] void abort(int status);

  struct State;  // of the implementation

 private:
  std::unique_ptr<State> state_;
};

}  // namespace weft
