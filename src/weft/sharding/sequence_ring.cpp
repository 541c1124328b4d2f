#include "weft/sharding/sequence_ring.h"

namespace weft {

SequenceRing::SequenceRing(const ProcessMesh& mesh, const SequenceCut& cut) : cp_(mesh[Axis::cp]), ranks_(cut.ranks) {}

SequenceRing::Turn SequenceRing::begin(const Tensor& sent, const Tensor& received, Site site) const {
  const auto n = int(ranks_.size), me = int(ranks_.rank);
  if (n == 1) return {};
  Turn turn;
  turn.received = cp_.recv(received, (me - 1 + n) % n, site);
  turn.sent = cp_.send(sent, (me + 1) % n, site);
  return turn;
}

}  // namespace weft
