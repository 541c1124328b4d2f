#include "weft/apps/ranks.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "weft/apps/failure.h"
#include "weft/base/error.h"

#ifdef WEFT_MPI
#include "weft/comm/mpi/mpi_ranks.h"
#include "weft/comm/through_host.h"
#endif

namespace weft {

#ifdef WEFT_MPI

void check_mpi_is_built_in() {}

namespace {

// What CUDA is told before its first call, which may be MPI's. Where processes have a GPU each, a kernel of NCCL's
// waits for its peers on the GPU. Code that is loaded when it is first called may wait for that kernel to end, while
// the peer waits for what the code computes; streams that share a queue of the hardware wait for each other likewise.
// Settings in the user's environment stay.
void let_kernels_wait_for_other_gpus() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

}  // namespace

RankProcess join_mpi(int world, double timeout_s) {
  let_kernels_wait_for_other_gpus();
  const auto ranks = std::make_shared<MpiRanks>(MpiRanks::Options{.timeout_s = timeout_s});
  if (ranks->size() != world)
    throw ConfigError(
        fmt::format("the layout has {} ranks, but {} process{} found each other by MPI; is the launcher "
                    "of the Open MPI that weft was built with?",
                    world, ranks->size(), ranks->size() == 1 ? "" : "es"));
  const auto run = [ranks](const MeshSizes& sizes, const Mover& mover,
                           const std::function<void(const ProcessMesh&)>& body) {
    body(through_host(ranks->mesh(sizes), mover));
  };
  return {.rank = ranks->rank(),
          .here = ranks->here(),
          .run = run,
          .finish = [ranks] { ranks->finish(); },
          .tell_failure = [ranks](const std::string& why) { ranks->tell_failure(why); },
          .abort = [ranks](int status) { ranks->abort(status); }};
}

#else

void check_mpi_is_built_in() {
  throw ConfigError(
      "run.ranks = \"mpi\" cannot run: this weft was built where there was no MPI (package libopenmpi-dev); the "
      "nearest "
      "that works: run.ranks = \"local\"");
}
RankProcess join_mpi(int, double) {
  check_mpi_is_built_in();
  return {};
}

#endif

void let_the_first_rank_speak(int rank) {
  if (rank > 0) std::this_thread::sleep_for(std::chrono::seconds(2));
}

int run_as_rank(const RankProcess& process, const std::string& command, const std::function<int()>& body) {
  try {
    const int status = body();
    process.finish();
    return status;
  } catch (const std::exception& e) {
    process.tell_failure(fmt::format("rank {} has failed: {}", process.rank, e.what()));
    let_the_first_rank_speak(process.rank);
    process.abort(say_failure(process.leads() ? command : fmt::format("{}, rank {}", command, process.rank)));
    throw;
  }
}

}  // namespace weft
