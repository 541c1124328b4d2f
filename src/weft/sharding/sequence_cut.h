// How context parallel ranks share the sequences of a micro-batch.
//   S tokens of a sequence   n ranks   T rows here, those of a micro-batch's sequences one after the other
#pragma once
#include <array>
#include <span>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/device/arena.h"
#include "weft/ops/backend.h"
#include "weft/sharding/boundary.h"
#include "weft/sharding/param.h"

namespace weft {

// Every sequence is cut into 2 n runs. Rank r has runs r and 2 n - 1 - r, one behind the other, so that causal
// attention gives all ranks as much to do. One rank has all of it in its order.
struct SequenceCut {
  int64_t seq_length = 0;  // S: a multiple of 2 n, or n is 1
  RankOf ranks = {};

  int64_t rows() const { return seq_length / ranks.size; }  // of a sequence, on each rank
  // The tokens of a sequence that a rank has, in the order of its rows.
  std::array<Run, 2> runs_of(int64_t rank) const {
    return {share_of(seq_length, {2 * ranks.size, rank}),
            share_of(seq_length, {2 * ranks.size, 2 * ranks.size - 1 - rank})};
  }
  std::array<Run, 2> runs() const { return runs_of(ranks.rank); }

  // With neighbours taken together in groups of `size`: the groups share the sequences as if each were one rank, and a
  // group's ranks share its rows as if these were whole sequences.
  SequenceCut of_groups(int64_t size) const { return {seq_length, {ranks.size / size, ranks.rank / size}}; }
  SequenceCut within_group(int64_t size) const { return {rows() * size, {size, ranks.rank % size}}; }
};

// The rows of whole sequences, brought together from the ranks that share them, and the adjoint.
class WholeSequences {
 public:
  WholeSequences();

  struct At {
    Backend& be;
    const ProcessMesh& mesh;
    const SequenceCut& cut;
    Arena& scratch;  // where results lie
  };
  // parts[i] [T, d_i], Shard0 on cp, side by side: [n T, sum of d_i], Replicate on cp, in the order of the sequences.
  // Blocks.
  Tensor gather(const At& at, std::span<const Tensor> parts) const;
  // x like a gathered tensor, Partial on cp. Writes the sums of the ranks to the parts, Shard0 on cp. Blocks.
  void scatter_sums(const At& at, Tensor x, std::span<const Tensor> parts) const;

 private:
  Boundary join_;
};

}  // namespace weft
