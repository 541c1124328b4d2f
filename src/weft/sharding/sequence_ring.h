// Tensors that go around the ranks of cp.
#pragma once
#include <vector>

#include "weft/sharding/sequence_cut.h"

namespace weft {

// Turn after turn, each rank sends one to the next rank and receives the one before's. After t turns a rank has what
// began at rank `origin(t)`. All ranks issue the same turns in the same order; several may be under way. In groups of
// `group` neighbours, those of the same place in each are a ring, of the ranks of SequenceCut::of_groups.
class SequenceRing {
 public:
  SequenceRing(const ProcessMesh& mesh, const SequenceCut& cut, int64_t group = 1);
  int64_t origin(int64_t turns) const { return (ranks_.rank - turns % ranks_.size + ranks_.size) % ranks_.size; }
  // Both belong to the turn until it is waited for.
  struct Turn {
    Work received, sent;
    void wait() {
      received.wait();
      sent.wait();
    }
  };
  [[nodiscard]] Turn begin(const Tensor& sent, const Tensor& received, Site site = Site::current()) const;

 private:
  int at(int64_t member) const { return int(member * group_ + place_); }  // on cp
  Communicator& cp_;
  RankOf ranks_;
  int64_t group_, place_;
};

}  // namespace weft
