// Collectives side by side: ranks as threads, ranks as processes, and MPI's own, beside a copy in memory.
//   mpirun -n 2 --bind-to none build/cpu/comm_bench [MiB ...]
// Every figure is the time from before the call to the return of the last rank, the best of many; the ways take turns.
// GB/s count a rank's whole tensor once, so that all ways and the copy can be compared.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "weft/comm/local_group.h"
#include "weft/comm/mpi/mpi_ranks.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTurns = 7;
constexpr double kTurn_s = 0.05;

double since_s(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

struct Buffers {
  explicit Buffers(int64_t n, int ranks) : count(n / ranks * ranks), x(size_t(count), 1), y(size_t(count), 1) {}
  int64_t count;
  std::vector<float> x, y;
  Tensor whole() { return {x.data(), DType::f32, {count}}; }
  Tensor share(int ranks) { return {y.data(), DType::f32, {count / ranks}}; }
};

struct Collective {
  const char* name;
  std::function<void(Communicator&, Buffers&)> weft;
  std::function<void(Buffers&, int ranks)> mpi;
};

std::vector<Collective> collectives() {
  return {{"all-reduce", [](Communicator& c, Buffers& b) { c.all_reduce(b.whole()).wait(); },
           [](Buffers& b, int) {
             MPI_Allreduce(MPI_IN_PLACE, b.x.data(), int(b.count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
           }},
          {"reduce-scatter", [](Communicator& c, Buffers& b) { c.reduce_scatter(b.whole(), b.share(c.size())).wait(); },
           [](Buffers& b, int ranks) {
             MPI_Reduce_scatter_block(b.x.data(), b.y.data(), int(b.count) / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
           }},
          {"all-gather", [](Communicator& c, Buffers& b) { c.all_gather(b.share(c.size()), b.whole()).wait(); },
           [](Buffers& b, int ranks) {
             const int n = int(b.count) / ranks;
             MPI_Allgather(b.y.data(), n, MPI_FLOAT, b.x.data(), n, MPI_FLOAT, MPI_COMM_WORLD);
           }}};
}

// The least time of `call`, of as many as a turn has time for; `all` is a barrier.
double best_s(const std::function<void()>& call, const std::function<void()>& all) {
  double best = 1e9;
  for (const auto began = Clock::now();;) {
    all();
    const auto start = Clock::now();
    call();
    best = std::min(best, since_s(start));
    double over = since_s(began) > kTurn_s, any = 0;
    MPI_Allreduce(&over, &any, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (any > 0) return best;
  }
}

// Ranks as threads of the first process, while the others wait.
double best_local_s(const Collective& one, int64_t n, int ranks) {
  double best = 1e9;
  run_local(ranks, [&](Communicator& c) {
    Buffers b(n, ranks);
    for (int i = 0; i < 20; ++i) {
      barrier(c);
      const auto start = Clock::now();
      one.weft(c, b);
      if (c.rank() == 0) best = std::min(best, since_s(start));
    }
  });
  return best;
}

double best_copy_s(int64_t n) {
  std::vector<float> a(size_t(n), 1), b(size_t(n), 2);
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto start = Clock::now();
    std::memcpy(a.data(), b.data(), size_t(n) * sizeof(float));
    best = std::min(best, since_s(start));
    b[size_t(i) % b.size()] = a[0];
  }
  return best;
}

double longest_s(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

// A process that waits for a long time lets the others have its core.
void wait_for_first() {
  MPI_Request request;
  int done = 0;
  for (MPI_Ibarrier(MPI_COMM_WORLD, &request); MPI_Test(&request, &done, MPI_STATUS_IGNORE), done == 0;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void measure(MpiRanks& ranks, Communicator& c, const Collective& one, int64_t n) {
  const int size = ranks.size();
  Buffers b(n, size);
  double ours = 1e9, theirs = 1e9, local = 1e9, copy = 1e9;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto together = [] { MPI_Barrier(MPI_COMM_WORLD); };
    ours = std::min(ours, longest_s(best_s([&] { one.weft(c, b); }, together)));
    theirs = std::min(theirs, longest_s(best_s([&] { one.mpi(b, size); }, together)));
    std::fill(b.x.begin(), b.x.end(), 1.0f);  // sums of sums would overflow
    if (ranks.rank() == 0) {
      local = std::min(local, best_local_s(one, n, size));
      copy = std::min(copy, best_copy_s(n));
    }
    wait_for_first();
  }
  if (ranks.rank() != 0) return;
  const auto rate = [&](double s) { return double(n) * sizeof(float) / s / 1e9; };
  fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", one.name,
             n >= 1 << 18 ? fmt::format("{} MiB", n >> 18) : fmt::format("{} B", n * 4), local * 1e6, ours * 1e6,
             theirs * 1e6, theirs / ours, rate(local), rate(ours), rate(theirs), rate(copy));
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::MpiRanks ranks;
  const weft::ProcessMesh mesh = ranks.mesh({.dp = ranks.size()});
  std::vector<int64_t> counts{2, 256, 4096, 65536};
  for (const int64_t mib : {1, 4, 8, 16, 64}) counts.push_back(mib << 18);
  if (argc > 1) counts.clear();
  for (int i = 1; i < argc; ++i) counts.push_back(int64_t(std::atoi(argv[i])) << 18);
  if (ranks.rank() == 0)
    fmt::print(
        "{} ranks, f32\n| | size | threads us | processes us | MPI us | MPI / processes | threads GB/s | processes "
        "GB/s | MPI GB/s | memcpy GB/s |\n|---|---|---|---|---|---|---|---|---|---|\n",
        ranks.size());
  for (const weft::Collective& one : weft::collectives())
    for (const int64_t n : counts) weft::measure(ranks, *mesh.world, one, n);
  ranks.finish();
}
