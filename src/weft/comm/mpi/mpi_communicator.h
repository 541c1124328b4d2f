// Collectives and messages among processes, over MPI's messages between two ranks.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "weft/comm/mpi/mpi_hub.h"
#include "weft/comm/mpi/mpi_operations.h"

namespace weft {

// Sums are weft's own, in rank order, with the bits of LocalGroup's. Calls begin a collective and return at once; it
// makes progress in any later call of a communicator of this rank, in Work::wait and in MpiRanks::poll. A small send
// has copied its tensor when it returns. Ranks that meet in different calls throw a CommError that names both; see
// MpiRanks. To be used by one thread at a time.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiHub> hub, MpiGroup group) : hub_(std::move(hub)), group_(std::move(group)) {}
  int size() const override { return group_.size(); }
  int rank() const override { return group_.rank; }
  Work all_reduce(Tensor x, Site site) override;
  Work all_gather(Tensor shard, Tensor full, Site site) override;
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override;
  Work send(Tensor x, int to, Site site) override;
  Work recv(Tensor x, int from, Site site) override;

 private:
  CommCall collective(const char* op, const Tensor& x, const Site& site);
  CommCall message(const char* op, const Tensor& x, int peer, std::vector<int64_t>& numbers, const Site& site);
  Work begin(std::shared_ptr<Operation> operation);
  std::vector<int64_t> equal_shares(int64_t each) const;
  std::vector<int64_t> line_shares(int64_t elements) const;

  std::shared_ptr<MpiHub> hub_;
  MpiGroup group_;
};

// Makes progress on a rank's calls while the rank is inside a kernel: over a network, MPI moves data only when it is
// called, and a kernel may outlast what the sockets hold.

// A thread that polls the hub now and then. Hub and MPI are used by one thread at a time: by this one between `lend`
// and `take_back`, else by the rank's own, which makes this object and calls all of it.
class MpiBeside {
 public:
  explicit MpiBeside(std::shared_ptr<MpiHub> hub);
  ~MpiBeside();
  MpiBeside(const MpiBeside&) = delete;
  MpiBeside& operator=(const MpiBeside&) = delete;

  void lend();  // does nothing if no call is under way
  void take_back();

 private:
  void run();

  std::shared_ptr<MpiHub> hub_;
  std::mutex hub_mutex_;
  std::unique_lock<std::mutex> own_{hub_mutex_};  // held by the rank's thread, except while lent
  std::atomic<bool> wanted_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace weft
