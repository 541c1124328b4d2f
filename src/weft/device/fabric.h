// How bytes go between the devices of different ranks, and are added there, without a host in between.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/device/device_queue.h"
#include "weft/tensor/dtype.h"

namespace weft {

// One rank's end of a group of ranks. It runs its calls asynchronously, in order, while the device computes; every rank
// of the group issues matching calls. Tensors lie in its device's memory, and belong to it until it has passed them.
// For its rank's thread; throws CommError.
class Transport {
 public:
  struct Message {
    void* data;
    int64_t bytes;  // not 0
    int peer;
  };
  virtual ~Transport() = default;  // waits for what is under way, or where an exception is, aborts
  // All messages concurrently; between two ranks in this order.
  virtual void exchange(std::span<const Message> sent, std::span<const Message> received) = 0;
  // `bytes` of every rank, in their order. `mine` may lie in its place.
  virtual void all_gather(const void* mine, void* all, int64_t bytes) = 0;
  // As comm/rank_sum.h has it, bit for bit.
  virtual void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) = 0;
  // Its device's, for messages on their way.
  virtual std::span<std::byte> staging() const = 0;

  // The queue that it runs on.
  virtual DeviceQueue& queue() = 0;
  // The place behind what it was given so far, and, when its queue has passed that, once for each: when it did, in
  // nanoseconds of std::chrono::steady_clock.
  virtual Stamp stamp() = 0;
  virtual int64_t take_time_ns(Stamp stamp) = 0;
  virtual std::string failure() = 0;  // the failure here or at a peer that stopped it; else empty
  // Ends what is under way, and returns once nothing touches a tensor any more; marks then count as passed. Make no
  // call after it. Its queue may wait for the rank's other transports, so abort all of a rank's at the same time, each
  // in a thread.
  virtual void abort() noexcept = 0;
};

// Connects this rank's device with others.
class Fabric {
 public:
  struct End {
    std::span<const std::byte> name;  // of the group: what one rank has made
    int size, rank;
    int64_t staging_bytes;
    bool only_messages = false;  // no collectives: it may take less of the device
  };
  virtual ~Fabric() = default;
  virtual std::string description() const = 0;  // "NCCL 2.28.9"; must be equal on all ranks
  virtual std::string device() const = 0;       // its name in the world: two ranks with the same share it
  virtual int64_t free_bytes() const = 0;       // of its device's memory
  virtual int most_ranks() const = 0;           // of a group
  // Is this memory of the device alone? Memory that the host can touch too is not.
  virtual bool holds(const void* at) const = 0;

  virtual size_t name_bytes() const = 0;
  virtual void make_name(std::span<std::byte> name) = 0;
  // Returns when all of the group have called it. Throws CommError.
  virtual std::unique_ptr<Transport> connect(const End& end) = 0;
};

}  // namespace weft
