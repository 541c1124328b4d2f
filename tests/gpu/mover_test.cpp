// What ranks that are threads move on GPUs: the bits of the host's, on one GPU or on as many as there are.
#include "comm/same_collectives.h"
#include "gpu/gpu.h"
#include "weft/comm/host_mover.h"
#include "weft/comm/local_group.h"

namespace weft {
namespace {

using testing::Values;

constexpr int kRanks = 4;

Machine machine_of_ranks() {
  Recipe recipe;
  recipe.run.backend = choice_named<BackendKind>(testing::gpu_backend()).value();
  recipe.run.threads = 1;
  recipe.parallel.dp = kRanks;
  return testing::gpu_machine_for(recipe);
}

// A tensor of each rank, on its GPU.
class Ranks {
 public:
  Ranks(const Machine& machine, DType dtype, int64_t n) : mover_(*machine.mover), dtype_(dtype), n_(n) {
    for (int r = 0; r < kRanks; ++r) {
      arenas_.emplace_back("tensors", 2 * (n * size_of(dtype) + kArenaAlignment), machine.of_rank(r).memory);
      const Tensor x = arenas_.back().alloc(dtype, {n});
      const Values values(dtype, n, r);
      mover_.copy(x.data, values.bytes.data(), x.bytes());
      tensors.push_back(x);
    }
  }
  Tensor other(int rank) { return arenas_[size_t(rank)].alloc(dtype_, {n_}); }
  Values at(const Tensor& x) const {
    Values values(dtype_, n_, 0);
    mover_.copy(values.bytes.data(), x.data, x.bytes());
    return values;
  }
  template <class Pointer>
  std::vector<Pointer> pointers() const {
    std::vector<Pointer> all;
    for (const Tensor& x : tensors) all.push_back(x.data);
    return all;
  }
  std::vector<Tensor> tensors;

 private:
  const Mover& mover_;
  DType dtype_;
  int64_t n_;
  std::vector<Arena> arenas_;
};

Values sum_by_host(DType dtype, int64_t n) {
  std::vector<Values> ranks;
  std::vector<const void*> from;
  for (int r = 0; r < kRanks; ++r) ranks.emplace_back(dtype, n, r);
  for (const Values& v : ranks) from.push_back(v.bytes.data());
  Values out(dtype, n, 0);
  host_mover()->sum(from, dtype, n, out.bytes.data());
  return out;
}

TEST(RanksOnGpus, SumsHaveTheBitsOfTheHosts) {
  WEFT_NEEDS_GPU();
  const Machine machine = machine_of_ranks();
  for (const DType dtype : testing::kSums) {
    for (const int64_t n : {int64_t{1}, int64_t{4099}, int64_t{500'001}}) {
      const std::string what = fmt::format("{} {}, {}", n, name_of(dtype), machine.description);
      const Values expected = sum_by_host(dtype, n);
      for (int mine = 0; mine < kRanks; ++mine) {
        Ranks ranks(machine, dtype, n);
        const Tensor out = ranks.other(mine);
        machine.mover->sum(ranks.pointers<const void*>(), dtype, n, out.data);
        EXPECT_TRUE(ranks.at(out) == expected) << what << ", to rank " << mine;
        machine.mover->sum_in_place(ranks.pointers<void*>(), mine, dtype, n);
        for (const Tensor& x : ranks.tensors) EXPECT_TRUE(ranks.at(x) == expected) << what << ", by rank " << mine;
      }
    }
  }
}

TEST(RanksOnGpus, CopiesGoFromEachToEach) {
  WEFT_NEEDS_GPU();
  const Machine machine = machine_of_ranks();
  constexpr int64_t kElements = 1'000'003;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      Ranks ranks(machine, DType::u8, kElements);
      const Tensor x = ranks.tensors[size_t(from)], copied = ranks.other(to);
      EXPECT_EQ(machine.mover->host_reaches(x.data), machine.memory->host_reaches());
      machine.mover->copy(copied.data, x.data, x.bytes());
      EXPECT_TRUE(ranks.at(copied) == Values(DType::u8, kElements, from)) << from << " to " << to;
    }
  }
}

TEST(RanksOnGpus, CollectivesOfThreadsHaveTheBitsOfTheHosts) {
  WEFT_NEEDS_GPU();
  const Machine machine = machine_of_ranks();
  run_local(
      {.dp = kRanks},
      [&](const ProcessMesh& mesh) {
        const int me = mesh.world->rank();
        Arena arena("tensors", int64_t{1} << 22, machine.of_rank(me).memory);
        const testing::Place place = testing::place_in(arena, *machine.mover);
        const auto take_back = [&](Values& v, const Tensor& from) {
          place.take_back(v, from);
          arena.rewind();
        };
        // By the same communicator, of tensors on the host and of tensors on the rank's GPU.
        testing::SameCollectives(*mesh.world, *mesh.world, {place.put, take_back}).expect_all();
      },
      *machine.mover);
}

}  // namespace
}  // namespace weft
