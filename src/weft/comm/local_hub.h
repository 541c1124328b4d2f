// The calls under way between ranks of one process, and how each rank waits.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/comm/rank_watch.h"

namespace weft {

// A rank's calls make progress whenever it is in a call of any communicator, or polls. Thread-safe: a thread per rank.
class LocalHub {
 public:
  using Lock = std::unique_lock<std::mutex>;
  // A call that has been made and is not finished. Belongs to its rank's thread.
  class Operation {
   public:
    explicit Operation(const CommCall& call) : call(call) {}
    virtual ~Operation() = default;
    // Makes what progress it can without waiting, under the hub's lock. True if there was any.
    virtual bool advance(Lock& lock) = 0;

    const CommCall call;
    bool finished = false;
  };

  explicit LocalHub(int ranks);
  // All of these but `abort` and `ended` are called by the rank's own thread, and throw CommError once any has failed.
  void begin(int rank, std::shared_ptr<Operation> operation);
  void poll(int rank);  // makes progress where possible
  void wait(int rank, const Operation& operation);
  // The operation's tensors end before it has finished: all ranks fail, and none touches them any more.
  void abandon(int rank, const Operation& operation) noexcept;
  void abort(const std::string& why);  // every rank that waits, now or later, throws CommError
  void ended(int rank) { watch_.ended(rank); }

  // For operations. `move` gives up the lock while it runs f, which reads and writes tensors of several ranks.
  template <class F>
  void move(Lock& lock, const F& f) {
    const Moving moving(*this, lock);
    f();
  }
  Lock lock() { return Lock(mutex_); }
  void wake(int rank);
  [[noreturn]] void fail(const std::string& why);

 private:
  class Moving {
   public:
    Moving(LocalHub& hub, Lock& lock) : hub_(hub), lock_(lock) {
      ++hub_.moving_;
      lock_.unlock();
    }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;
    ~Moving() {
      lock_.lock();
      if (--hub_.moving_ == 0) hub_.still_.notify_all();
    }

   private:
    LocalHub& hub_;
    Lock& lock_;
  };
  struct Seat {
    std::vector<std::shared_ptr<Operation>> under_way;  // of its thread alone
    std::condition_variable news;
    std::atomic<int64_t> events{0};
    int64_t seen = 0;  // events, before the last look at what is under way; changes under the lock
  };
  bool advance_all(Lock& lock, Seat& seat);
  void sleep(Lock& lock, int rank, const CommCall& call);
  bool has_news_soon(const Seat& seat) const;  // of its own thread, without the lock
  void set_failure(const std::string& why);
  bool has_news() const;
  void check_alive() const {
    if (!failure_.empty()) throw CommError(failure_);
  }

  std::mutex mutex_;
  std::deque<Seat> seats_;
  const bool crowded_;  // more ranks than cores
  RankWatch watch_;
  int moving_ = 0;  // ranks that are in `move`
  std::condition_variable still_;
  std::string failure_;  // empty: none
};

}  // namespace weft
