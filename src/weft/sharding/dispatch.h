// Rows of experts on their way from rank to rank, and back.
//   T tokens here, whole on tp   k experts of a token   E experts, G of them here
//   pair: a token and one of its experts   n rows: the pairs of all ranks of ep whose experts are here
#pragma once
#include <string>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/device/arena.h"
#include "weft/ops/backend.h"
#include "weft/sharding/expert_counts.h"

namespace weft {

// More rows than a rank has room for: every rank of the ep group throws it.
class CapacityError : public Error {
 public:
  using Error::Error;
};

// Sends tokens to the ranks of their experts, by an all-to-all with counts, and what experts made of them back, which
// is its adjoint. The only change between the two views of the ranks: tokens are cut over dp and cp, rows over edp and
// ep. Buffers have room for what may come if all ranks had as many tokens as the one with most; ops work on the rows
// that there are. On a dry mesh all experts are taken to have as many rows; without data, all that there is room for.
// Among one rank nothing moves, and rows are those that its tokens make.
//
// The order of rows is fixed: by expert, then by the rank they come from, then by token.
class Dispatch {
 public:
  struct Spec {
    std::string name;  // of the layer, for messages
    int64_t experts, chosen;
    ExpertCapacity capacity;
  };
  struct At {
    Backend& be;
    const ProcessMesh& mesh;
    Arena& scratch;
  };
  // Where pairs go. Tensors live as long as the arena they were made in.
  struct Routes {
    Tensor order;    // i32 [m]      of each row that leaves here its pair; m <= T k
    Tensor places;   // i32 [T, k]   of each pair its row among those; below 0 where it was dropped
    Tensor offsets;  // i32 [G + 1]  rows [offsets[g], offsets[g + 1]) are of the g-th expert here
    Tensor arrived;  // i32 [n]      of each row where it came, among those of the first rank, of the second, ...
    Tensor back;     // i32 [n]      the inverse
    std::vector<int64_t> sent, received;  // rows, by rank of ep; none among one rank, as of the two before
    int64_t rows = 0, capacity = 0;       // n; of buffers
    int64_t dropped = 0;                  // pairs of tokens here
    bool shared = false;                  // other ranks of cp work on the other pairs of the same tokens
    // Where this rank works on all pairs of its tokens: the rows of each rank's experts, and the offsets among them.
    // Else none.
    struct Owned {
      Run rows;
      Tensor offsets;  // i32 [G + 1]
    };
    std::vector<Owned> owned;  // by rank of ep
    Tensor numbers = {};       // i64 [n]  of each row that of its pair, where dropout asks for them (pair_numbers)
  };

  explicit Dispatch(Spec spec) : spec_(std::move(spec)) {}

  // ids i32 [T, k]: the experts of each token. `kept`: for as long as rows go by these routes. Blocks. Throws
  // CapacityError where a rank of the group would receive more than it has room for, and pairs may not be dropped.
  Routes route(const At& at, Tensor ids, Arena& kept) const;
  // Of tokens that every rank of cp has, with which nothing need travel: a rank works on its part of their pairs
  // (sharer_of_experts), and to_tokens adds up what all ranks made. All pairs have room. Blocks.
  Routes route_shared(const At& at, Tensor ids, RankOf sharer, Arena& kept) const;
  // Of tokens that stay where they are: their rank reads the weights of all experts (Pass::reaches_experts). All pairs
  // have room. Blocks.
  Routes route_here(const At& at, Tensor ids, Arena& kept) const;
  // Rows [n, cols] of compute or stat dtype for `routes`, placed so: of the capacity, but for those that there are not.
  static Tensor alloc_rows(Arena& arena, DType dtype, const Routes& routes, int64_t cols, Placement place);

  // x [per T k / k, w]: rows of tokens (per = k) or of pairs (per = 1), or a number of each; as rows of experts, in
  // `out`. Blocks.
  Tensor to_experts(const At& at, const Routes& routes, Tensor x, int64_t per, Arena& out) const;
  // The same in two steps, between which other things are done. What is in scratch stays there in between.
  struct OnTheWay {
    Tensor rows, coming;  // where they come to lie; as they arrive, none among one rank
    std::vector<Work> works;
  };
  OnTheWay begin_to_experts(const At& at, const Routes& routes, Tensor x, int64_t per, Arena& out) const;
  Tensor wait_at_experts(const At& at, const Routes& routes, OnTheWay way) const;
  // i64 [n] of each row its token's number times E plus its expert: the same on every layout. `tokens`: i64 [T]. Of
  // routes that `route` made. Blocks: the host looks at them.
  Tensor pair_numbers(const At& at, const Routes& routes, Tensor tokens, Arena& kept) const;
  // The adjoint for tokens: the sum of each token's rows, [T, w]; for pairs: [T k], 0 where dropped. In scratch.
  // Blocks. Routes that are shared have it for tokens alone.
  Tensor to_tokens(const At& at, const Routes& routes, Tensor rows) const;
  Tensor to_pairs(const At& at, const Routes& routes, Tensor rows) const;

 private:
  Routes group(const At& at, Tensor ids, Arena& kept) const;
  ExpertCounts wait_counts(const At& at, Tensor offsets) const;
  void check_capacity(const ExpertCounts& counts, int64_t tokens, int64_t capacity) const;
  OnTheWay begin(const At& at, const Routes& routes, Tensor x, int64_t per, Tensor rows) const;
  Tensor home(const At& at, const Routes& routes, Tensor rows) const;
  Spec spec_;
};

}  // namespace weft
