// The ranks on this host as processes: whether they live and run.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

class HostPeers {
 public:
  // Collective. Ranks see each other if they share the host's name and the process table.
  explicit HostPeers(MPI_Comm ranks);

  bool on_one_host(const std::vector<int>& ranks) const;
  int here() const { return int(here_.size()); }                // ranks on this host, this one among them
  const std::vector<int>& ranks_here() const { return here_; }  // ascending
  int cores() const { return cores_; }                          // that this process may use
  enum class Is { unknown, running, stopped, gone };
  Is state(int rank) const;          // unknown: on another host
  std::string name(int rank) const;  // "process 123 on host a"

 private:
  struct Card {
    char host[64] = "";
    int64_t pid = 0;
    uint64_t processes = 0;  // identifies the process table (PID namespace)
    bool operator==(const Card&) const = default;
  };
  bool sees(const Card& other) const;
  std::vector<Card> cards_;
  std::vector<int> here_;
  int rank_ = 0, cores_ = 1;
};

}  // namespace weft
