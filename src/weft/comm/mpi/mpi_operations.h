// Collectives and messages as state machines. Byte counts are what one rank sends and receives.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "weft/comm/mpi/mpi_hub.h"

namespace weft {

// A run of memory on its way to or from one peer, in parts, a few of them at a time.
class MpiTransfer {
 public:
  struct Parts {
    int64_t bytes;  // of each but the last
    int window;     // under way at most
  };
  struct Spec {
    MPI_Comm comm;
    int peer, tag;
    bool receives;
    std::byte* data;  // of all parts; where `cycles`, of as many as are under way, used in turn
    int64_t bytes;
    Parts parts;
    bool cycles = false;
  };
  MpiTransfer() = default;  // of nothing
  explicit MpiTransfer(const Spec& spec);

  int64_t num_parts() const;
  int64_t done() const { return done_; }  // parts 0 .. done - 1 have arrived, or may be overwritten
  bool finished() const { return done_ == num_parts(); }
  bool under_way() const { return done_ < begun_; }
  // Begins parts below `limit`, and counts those that have finished in `events`. Throws CommError.
  void advance(int64_t limit, int64_t& events);

 private:
  void begin(int64_t part);

  Spec spec_ = {};
  std::vector<MPI_Request> requests_;
  int64_t begun_ = 0, done_ = 0;
};

// The ranks of one communicator.
struct MpiGroup {
  MpiHub& hub;
  MPI_Comm comm;             // for parts
  int index;                 // in the hub
  std::vector<int> members;  // world ranks, by rank
  int rank;
  bool on_one_host;
  std::vector<std::byte> staging;  // receives peers' summands in the collective that runs; grows, and is kept
  int64_t collectives = 0;
  std::vector<int64_t> sent, received;  // messages, by rank
  int size() const { return int(members.size()); }
  using Parts = MpiTransfer::Parts;
  // Parts of a sum, which are all in staging while they are under way: on one host, as much as the L2 cache holds.
  // Over a network, a part's announcement and its answer queue behind earlier parts, and the link idles if few are
  // under way. `share_bytes` is the largest of any rank, so that all ranks agree.
  Parts parts_of_sum(int64_t share_bytes) const;
  // Parts of a copy.
  static Parts parts_of_copy();
};

// Begins with a call to every other rank, and meets theirs: where one does not match, every rank learns both.
class Collective : public Operation {
 public:
  Collective(MpiGroup& group, const CommCall& call) : Operation(call), group_(group), met_(group.members.size()) {}
  std::vector<int> missing() const override;

 protected:
  void tell(int rank, std::span<const std::byte> payload = {});
  bool meet(int rank);  // true once its call has come
  bool meet_all();
  void recycle();
  virtual bool done_with(int rank) const { return met_[size_t(rank)] != nullptr; }

  MpiGroup& group_;
  std::vector<LetterPtr> met_;  // by rank
};

// A collective whose tensor travels in the notes: one message to each rank, one from each. Steps: 1.
class SmallCollective final : public Collective {
 public:
  // `finish` is given each rank's payload; that of this rank is `mine`. Only what lies at `part(rank)` is sent to rank.
  struct Spec {
    std::function<std::span<const std::byte>(int rank)> part;
    std::function<void(std::span<const void* const> payloads)> finish;
  };
  static bool fits(int64_t bytes, const MpiGroup& group) {
    return size_t(bytes) <= Letter::kPayload || group.size() == 1;
  }
  SmallCollective(MpiGroup& group, const CommCall& call, Spec spec);
  bool advance(int64_t& events) override;

 private:
  Spec spec_;
};

// Every rank has a share of the elements, from first[rank] to first[rank + 1]. Scattering, it sends each peer the
// peer's share and sums what all have sent it, in rank order, part by part while later parts are under way.
// Gathering, it sends each peer its own share, parts as soon as they are summed. Moves (size - 1) / size of the bytes
// each way, twice where it does both.
class MpiExchange final : public Collective {
 public:
  struct Spec {
    bool scatters, gathers;
    std::byte* base;             // of all elements
    std::vector<int64_t> first;  // in elements, one more than ranks
    std::byte* own;              // of this rank's share: the sum, or what is gathered
  };
  MpiExchange(MpiGroup& group, const CommCall& call, Spec spec);
  bool advance(int64_t& events) override;
  bool under_way() const override { return open_; }

 private:
  struct Lane {  // to one peer and from it
    MpiTransfer summands_out, summands_in, own_out, theirs_in;
    bool finished() const;
  };
  bool done_with(int rank) const override {
    return open_ ? lanes_[size_t(rank)].finished() : met_[size_t(rank)] != nullptr;
  }
  void open(int rank);
  void sum_parts();
  std::byte* share(int rank) const;
  int64_t share_bytes(int rank) const;
  std::byte* staged(int rank) const;

  Spec spec_;
  MpiGroup::Parts parts_;
  int64_t summed_ = 0;       // parts
  std::vector<Lane> lanes_;  // by rank
  bool open_ = false;        // every rank is in the collective, so that it will end
  std::vector<const void*> operands_;
};

// One tensor to or from a peer: within the note, or after the receiver has said that it is ready.
class MessageOperation : public Operation {
 public:
  bool under_way() const override { return open_; }
  std::vector<int> missing() const override { return {call.peer}; }

 protected:
  MessageOperation(MpiGroup& group, const CommCall& call, std::span<std::byte> bytes)
      : Operation(call), group_(group), bytes_(bytes) {}
  bool is_small() const { return bytes_.size() <= Letter::kPayload; }
  MpiTransfer transfer(int peer, bool receives) const;

  MpiGroup& group_;
  std::span<std::byte> bytes_;
  MpiTransfer transfer_;
  bool open_ = false;
};

class SendOperation final : public MessageOperation {
 public:
  SendOperation(MpiGroup& group, int to, const CommCall& call, std::span<std::byte> bytes);
  bool advance(int64_t& events) override;
};

class ReceiveOperation final : public MessageOperation {
 public:
  ReceiveOperation(MpiGroup& group, int from, const CommCall& call, std::span<std::byte> bytes);
  bool advance(int64_t& events) override;

 private:
  int from_;
};

}  // namespace weft
