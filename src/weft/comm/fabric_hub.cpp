#include "weft/comm/fabric_hub.h"

#include <chrono>
#include <thread>

#include "weft/base/threads.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kSpins = 2000;        // looks before the core is offered to others
constexpr int64_t kLooksPerCheck = 64;  // at the transport's health and at other ranks
constexpr double kSleepAfter_s = 5e-3;
constexpr auto kSleep = std::chrono::microseconds(50);
constexpr size_t kMostOrdered = 64;  // calls of a lane that its device may not have passed

double since_s(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

}  // namespace

std::shared_ptr<Lane> FabricHub::connect(const Fabric::End& end) {
  lanes_.push_back(std::make_shared<Lane>(Lane{.transport = fabric_->connect(end)}));
  return lanes_.back();
}

void FabricHub::wait(Transport& transport, int64_t mark, const CommCall& call) {
  const Clock::time_point began = Clock::now();
  for (int64_t looks = 1; !transport.stream().passed(mark); ++looks) {
    if (looks % kLooksPerCheck != 0 && looks > 1) continue;
    check_alive();
    if (const std::string why = transport.failure(); !why.empty())
      fail_unless_told(fmt::format("{} has failed in {}: {}", fabric_->description(), call.to_string(), why));
    if (poll_) poll_();
    if (looks < kSpins) continue;
    const double still_s = since_s(began);
    if (still_s > patience_.timeout_s)
      fail(
          fmt::format("{}: {} is not over after {:.0f} s, though {}; is a GPU or the link to it broken (nvidia-smi, "
                      "dmesg)?",
                      fabric_->description(), call.to_string(), still_s,
                      std::string_view(call.op) == "send" ? "the host of the other rank still answers"
                                                          : "its ranks have begun it"));
    if (still_s < kSleepAfter_s)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kSleep);
  }
}

void FabricHub::let_wait_for_device(Lane& lane) {
  if (!orders()) return;
  Stream& device = *issue_();
  lane.transport->stream().wait_for(device, device.mark());
}

void FabricHub::wait_in_order(Lane& lane, int64_t mark, const CommCall& call) {
  if (!orders()) return wait(*lane.transport, mark, call);
  issue_()->wait_for(lane.transport->stream(), mark);
  while (!lane.ordered.empty() && lane.transport->stream().passed(lane.ordered.front().mark)) lane.ordered.pop_front();
  lane.ordered.push_back({mark, call});
  if (lane.ordered.size() > kMostOrdered) settle();  // what a device is given waits for room where it has too much
}

// The first stamp of each sets its clock, while nothing is under way.
void FabricHub::stamp_calls(std::function<void()> settled) {
  for (const auto& lane : lanes_) lane->transport->stamp();
  settled_ = std::move(settled);
}

void FabricHub::settle() {
  check_alive();
  try {
    for (const auto& lane : lanes_) {
      for (; !lane->ordered.empty(); lane->ordered.pop_front())
        wait(*lane->transport, lane->ordered.front().mark, lane->ordered.front().call);
    }
  } catch (const std::exception& e) {  // also of the host's
    give_up(e.what());
    throw;
  }
  if (settled_) settled_();
}

// The device may notice first that a peer stopped; the peer tells why a moment later.
void FabricHub::fail_unless_told(const std::string& why) {
  const Clock::time_point began = Clock::now();
  for (; poll_ && since_s(began) < patience_.told_s; std::this_thread::sleep_for(kSleep)) poll_();
  fail(why);
}

void FabricHub::fail(const std::string& why) {
  give_up(why);
  throw CommError(failure_);
}

void FabricHub::give_up(const std::string& why) noexcept {
  if (!failure_.empty()) return;
  failure_ = why;
  Threads all;  // the end of one may wait for the device, which may wait for another
  std::vector<Transport*> without_thread;
  for (const auto& lane : lanes_) {
    try {
      all.start([&lane = *lane] { lane.transport->abort(); });
    } catch (const Error&) { without_thread.push_back(lane->transport.get()); }
  }
  for (Transport* transport : without_thread) transport->abort();
}

}  // namespace weft
