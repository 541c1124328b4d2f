// Which ranks go on with the same texts, and how they bring together what they have of them. Ranks of dp have texts of
// their own; those of tp, cp and pp share them.
#pragma once
#include <optional>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/device/arena.h"
#include "weft/sharding/param.h"

namespace weft {

// The place of this rank among those that all texts are dealt out to; and the ranks that have the other texts.
RankOf rank_of_texts(const ProcessMesh& mesh);
Communicator& ranks_of_other_texts(const ProcessMesh& mesh);

// One of the ranks that share texts, in the stage of the pipeline that has the head.
bool speaks_for_texts(const ProcessMesh& mesh, bool has_head);
// The sum over all ranks that share texts, in place. Blocks.
void wait_sum_over_sharers(const ProcessMesh& mesh, const Tensor& x);

// The part of `columns` that this rank makes where all ranks of cp make equal ones; all of them where they cannot.
Run columns_of_rank(const ProcessMesh& mesh, int64_t columns);

// For rows that every rank of cp has, while each keeps other keys of their texts. Those that bring something together
// block.
// x [n, d] of each rank, one behind the other in the order of ranks [cp n, d]: x itself, or in `out`.
Tensor rows_of_all_keepers(const ProcessMesh& mesh, const Tensor& x, Arena& out);
// The part of the experts' work on such rows that a rank does. Where experts are cut over ep: what falls to its
// experts, shared with the ranks that hold the same ones; else its share of all of it. None: where ranks of dp, which
// have rows of their own, are among those.
std::optional<RankOf> sharer_of_experts(const ProcessMesh& mesh);
// Where the ranks of ep are threads of one process: `mine` of each of them, by rank. What it points to must be left as
// it is until wait_for_ranks_of_experts, after which nobody looks at it any more. Both block.
std::vector<const void*> shown_by_ranks_of_experts(const ProcessMesh& mesh, const void* mine);
void wait_for_ranks_of_experts(const ProcessMesh& mesh);
// x [n, d], a summand on each rank (its rows, and zeros for those of others): the sum on all of them, in place.
Tensor sum_over_keepers(const ProcessMesh& mesh, const Tensor& x, Arena& scratch);

}  // namespace weft
