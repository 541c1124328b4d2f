// Makes progress on a rank's calls while the rank is inside a kernel: over a network, MPI moves data only when it is
// called, and a kernel may outlast what the sockets hold.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "weft/comm/mpi/mpi_hub.h"

namespace weft {

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
