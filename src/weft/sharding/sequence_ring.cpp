#include "weft/sharding/sequence_ring.h"

namespace weft {

SequenceRing::SequenceRing(const ProcessMesh& mesh, const SequenceCut& cut, int64_t group)
    : cp_(mesh[Axis::cp]),
      ranks_(cut.of_groups(group).ranks),
      group_(group),
      place_(cut.within_group(group).ranks.rank) {}

SequenceRing::Turn SequenceRing::begin(const Tensor& sent, const Tensor& received, Site site) const {
  const int64_t n = ranks_.size, me = ranks_.rank;
  if (n == 1) return {};
  Turn turn;
  turn.received = cp_.recv(received, at((me - 1 + n) % n), site);
  turn.sent = cp_.send(sent, at((me + 1) % n), site);
  return turn;
}

}  // namespace weft
