// Shares of local copies that the next host holds too, so that any one host may be lost: checkpoint.local_neighbour
// (docs/formats/checkpoint.md#local-copies).
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/local_share.h"
#include "weft/comm/communicator.h"

namespace weft {

// The rank that holds a rank's share, and when it takes it where it holds several: in turn 0, 1, ...
struct NeighbourOf {
  int holder, turn;
};
// By rank, where each rank's host is named in `hosts`; empty: all ranks are on one host. Hosts form a ring, in the
// order of their first ranks. The i-th rank of a host sends to the i-th of the next one, modulo how many that has.
std::vector<NeighbourOf> neighbours_of(const std::vector<std::string>& hosts);
// The host's name that each rank gives. Collective.
std::vector<std::string> wait_hosts_of(Communicator& ranks, const std::string& mine);

// The shares of one copy on their way to their holders, in slices: while one is under way, the one before it is
// written. All but write_arrived are collective and belong to the ranks' own threads. Destroyed before its end, it
// leaves nothing on a disk that is not whole; where a slice is under way then, the communicator is dead.
class NeighbourCopy {
 public:
  struct Spec {
    Communicator& ranks;
    const std::vector<NeighbourOf>& neighbours;  // not empty; must stay
    std::filesystem::path life;                  // of this host
    int64_t step;
    std::span<const std::byte> data;  // this rank's share; must stay
    std::span<std::byte> room;        // for two slices that come here; must stay
    // Writes files/ of rank 0's share into its folder. Called by write_arrived.
    std::function<void(const std::filesystem::path&)> write_files;
  };
  explicit NeighbourCopy(Spec spec);

  // `manifest`: of this rank's share, which is written. The first slice is under way then.
  void wait_begin(const std::string& manifest);
  bool has_begun() const { return !manifests_.empty(); }
  // Is a slice under way on any rank.
  bool is_under_way() const { return turn_ < int(slices_of_turn_.size()); }
  // Returns when the slice under way is here and has left; the next one is under way then.
  void wait_slice();
  // Writes the slice that has come, if one has; with the last of a share, that gets its name. To be called after each
  // wait_slice, before the next; any thread may. Throws FileError.
  void write_arrived();
  // Returns when nothing is under way any more. The copy is over.
  void wait_stop();

  // What this host holds of it, or would.
  std::vector<std::filesystem::path> held() const;

 private:
  struct Slice {
    int from = -1;  // rank; none: this rank gets nothing
    int64_t first = 0, bytes = 0;
    std::byte* to = nullptr;
    bool is_last = false;
  };
  int rank() const { return spec_.ranks.rank(); }
  int held_in(int turn) const;
  int64_t slice_bytes(int of) const;
  int64_t num_slices(int of) const;
  std::filesystem::path path_of(int of) const;
  void begin_slice();
  void next_round();

  const Spec spec_;
  std::vector<uint64_t> bytes_, rooms_;      // of each rank: its share; a slice that it has room for
  std::vector<int64_t> slices_of_turn_;      // the most that any holder takes in it
  std::vector<std::string> manifests_ = {};  // by turn, of what this rank holds; at least one when it has begun
  int turn_ = 0;
  int64_t slice_ = 0, rounds_ = 0;
  Slice coming_, arrived_;
  std::unique_ptr<DurableFolder> folder_;  // of the share that is being written
  std::unique_ptr<LocalShareFiles> files_;
  std::vector<Work> under_way_;
};

}  // namespace weft
