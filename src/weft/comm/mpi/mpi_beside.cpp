#include "weft/comm/mpi/mpi_beside.h"

#include <chrono>

namespace weft {
namespace {

constexpr auto kPause = std::chrono::microseconds(100);  // at 10 Gbit/s, 0.1 MB: sockets hold more

}  // namespace

MpiBeside::MpiBeside(std::shared_ptr<MpiHub> hub) : hub_(std::move(hub)), thread_([this] { run(); }) {}

MpiBeside::~MpiBeside() {
  take_back();  // so that the thread can no longer find that nothing is wanted
  ends_ = true;
  wanted_ = true;
  wanted_.notify_one();
  thread_.join();
}

void MpiBeside::lend() {
  if (hub_->idle()) {
    wanted_ = false;
    return;
  }
  own_.unlock();
  if (!wanted_.exchange(true)) wanted_.notify_one();
}

void MpiBeside::take_back() {
  if (!own_.owns_lock()) own_.lock();
}

// The rank's thread never waits for more than one look.
void MpiBeside::run() {
  for (wanted_.wait(false); !ends_; wanted_.wait(false)) {
    std::this_thread::sleep_for(kPause);
    const std::unique_lock turn(hub_mutex_, std::try_to_lock);
    if (!turn) continue;
    try {
      hub_->poll_between();
    } catch (const std::exception&) {  // the rank's next call finds the same, and tells
      return;
    }
    if (hub_->idle()) wanted_ = false;
  }
}

}  // namespace weft
