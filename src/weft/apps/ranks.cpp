#include "weft/apps/ranks.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "weft/apps/failure.h"
#include "weft/apps/launch.h"
#include "weft/apps/launcher_words.h"
#include "weft/apps/start_watch.h"
#include "weft/base/error.h"

#ifdef WEFT_MPI
#include "weft/comm/mpi/mpi_ranks.h"
#include "weft/comm/through_host.h"
#endif

namespace weft {

#ifdef WEFT_MPI

void check_mpi_is_built_in() {}

namespace {

// What libraries read from the environment at their first call. Settings of the user stay.
void set_variables_of_libraries() {
  const auto set = [](const char* name, const char* value) { setenv(name, value, 0); };
  // If processes have a GPU each, a kernel of NCCL's waits for its peers on the GPU. Code that is loaded when it is
  // first called may wait for that kernel to end, while the peer waits for what the code computes; CUDA streams that
  // share a queue of the hardware wait for each other likewise.
  set("CUDA_MODULE_LOADING", "EAGER");
  set("CUDA_DEVICE_MAX_CONNECTIONS", "32");
  // Open MPI puts a whole message into a TCP socket's queue, and answers about the other direction behind it: a link
  // carries one direction at a time. Sent in pieces, both go on together.
  set("OMPI_MCA_btl_tcp_flags", "send,inplace,need-ack,need-csum,hetero-rdma");
}

void tell_launcher_of_start(int rank) {
  if (rank > 0 || !environment(kHasLauncher)) return;
  const std::string record = record_of_start();
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, record.data(), record.size());
}

}  // namespace

RankProcess join_mpi(int world, const Recipe::Run& run, const std::string& command) {
  set_variables_of_libraries();
  const double timeout_s = 60 * run.distributed_timeout_minutes;
  StartWatch::Spec watch{.command = command,
                         .what = "the ranks have not found each other",
                         .timeout_s = 60 * run.start_timeout_minutes,
                         .key = "run.start_timeout_minutes",
                         .rank = launched_as(environment).rank};
  std::optional<StartWatch> start(watch);
  const auto ranks = std::make_shared<MpiRanks>(MpiRanks::Options{.timeout_s = timeout_s});
  start.reset();
  if (ranks->size() != world)
    throw WorldError(
        fmt::format("the layout has {} ranks, but {} process{} found each other by MPI; is the launcher "
                    "of the Open MPI that weft was built with?",
                    world, ranks->size(), ranks->size() == 1 ? "" : "es"));
  watch.timeout_s = timeout_s;
  watch.key = "run.distributed_timeout_minutes";
  const auto run_ranks = [ranks, watch](const MeshSizes& sizes, const Mover& mover,
                                        const std::function<void(const ProcessMesh&)>& body) {
    std::optional<StartWatch> meets(watch);
    const ProcessMesh mesh = through_host(ranks->mesh(sizes), mover);
    meets.reset();
    tell_launcher_of_start(ranks->rank());
    body(mesh);
  };
  const auto finish = [ranks, watch]() mutable {
    watch.what = "the ranks have not ended together";
    const StartWatch ends(watch);
    ranks->finish();
  };
  return {.rank = ranks->rank(),
          .here = ranks->ranks_here(),
          .run = run_ranks,
          .finish = finish,
          .tell_failure = [ranks](const std::string& why) { ranks->tell_failure(why); },
          .abort = [ranks](int status) { ranks->abort(status); }};
}

#else

void check_mpi_is_built_in() {
  throw ConfigError(
      "run.ranks = \"mpi\" cannot run: this weft was built where there was no MPI (package libopenmpi-dev); the "
      "nearest that works: run.ranks = \"local\"");
}
RankProcess join_mpi(int, const Recipe::Run&, const std::string&) {
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
