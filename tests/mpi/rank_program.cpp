// One rank of an MPI job; mpi_test.cpp starts some of them: rank_program CASE FILE; of a CASE that begins with
// "fabric", tensors go by a fabric. Prints what differs, ends with 0 if nothing does; appends to the file what it has
// thrown (mpirun may lose what a rank prints at its end).
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <thread>

#include "mpi/socket_fabric.h"
#include "weft/base/rng.h"
#include "weft/comm/fabric_mesh.h"
#include "weft/comm/local_group.h"
#include "weft/comm/mpi/mpi_ranks.h"

namespace weft {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::string_view kFabric = "fabric ";

// Numbers of very different sizes, so that the order of a sum shows in its bits.
Bytes numbers(int rank, DType dtype, int64_t n, uint64_t seed) {
  Bytes data(size_t(n * size_of(dtype)));
  const uint64_t key = rng_key(rng_key(seed, "operand"), uint64_t(rank));
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = rng_key(key, uint64_t(i));
    const double x = (double(uint32_t(bits)) / 4294967296.0 - 0.5) * double(1 << (bits >> 32) % 24);
    std::byte* to = data.data() + i * size_of(dtype);
    const auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
    if (dtype == DType::f64) put(x);
    if (dtype == DType::f32) put(float(x));
    if (dtype == DType::bf16) put(bf16(float(x)));
    if (dtype == DType::f16) put(f16(float(x)));
    if (dtype == DType::i32) put(int32_t(bits));
  }
  return data;
}

// What one rank has after every kind of collective on n elements a rank.
Bytes all_collectives(Communicator& c, DType dtype, int64_t n) {
  const int64_t size = c.size(), bytes = n * size_of(dtype);
  Bytes seen;
  const auto see = [&](const Bytes& b) { seen.insert(seen.end(), b.begin(), b.end()); };
  Bytes x = numbers(c.rank(), dtype, n, 1), full = numbers(c.rank(), dtype, n * size, 2),
        shard(static_cast<size_t>(bytes));
  Bytes in_place = full, gathered(full.size()), mine = numbers(c.rank(), dtype, n, 3), second = x;
  const auto tensor = [&](Bytes& b, int64_t count) { return Tensor(b.data(), dtype, {count}); };
  const auto own = [&](Bytes& b) { return Tensor(b.data() + c.rank() * bytes, dtype, {n}); };
  if (dtype != DType::i32) {
    Work reduced = c.all_reduce(tensor(x, n));
    Work scattered = c.reduce_scatter(tensor(full, n * size), tensor(shard, n));
    Work placed = c.reduce_scatter(tensor(in_place, n * size), own(in_place));
    Work again = c.all_reduce(tensor(second, n));
    again.wait();  // in another order than they were begun in
    placed.wait();
    reduced.wait();
    scattered.wait();
    see(x), see(shard), see(second);
    see(Bytes(in_place.begin() + c.rank() * bytes, in_place.begin() + (c.rank() + 1) * bytes));
  }
  c.all_gather(tensor(mine, n), tensor(gathered, n * size)).wait();
  see(gathered);
  Bytes in_order(gathered.size());
  std::memcpy(in_order.data() + c.rank() * bytes, mine.data(), size_t(bytes));
  c.all_gather(own(in_order), tensor(in_order, n * size)).wait();
  see(in_order);
  return seen;
}

Bytes all_messages(Communicator& c, int64_t n) {
  const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
  Bytes seen;
  if (c.size() == 1) return seen;
  Bytes a = numbers(c.rank(), DType::f32, n, 4), b = numbers(c.rank(), DType::f32, n + 1, 5);
  Bytes from_a(a.size()), from_b(b.size());
  Work first = c.send({a.data(), DType::f32, {n}}, right);
  Work second = c.send({b.data(), DType::f32, {n + 1}}, right);
  c.recv({from_a.data(), DType::f32, {n}}, left).wait();
  c.recv({from_b.data(), DType::f32, {n + 1}}, left).wait();
  first.wait();
  second.wait();
  seen = from_a;
  seen.insert(seen.end(), from_b.begin(), from_b.end());
  return seen;
}

// MPI's mesh, or one by a fabric, whose world is one of its axes: for tests.
struct Meshes {
  MpiRanks& ranks;
  bool by_fabric;
  ProcessMesh operator()(const MeshSizes& sizes) const {
    ProcessMesh mesh = ranks.mesh(sizes);
    if (!by_fabric) return mesh;
    mesh = over_fabric(mesh, {.fabric = std::make_shared<testing::SocketFabric>()}).mesh;
    if (sizes.dp == sizes.world()) mesh.world = mesh.axes[size_t(Axis::dp)];
    return mesh;
  }
};

int check_same_as_threads(MpiRanks& ranks, const Meshes& meshes) {
  const ProcessMesh mesh = meshes({.dp = ranks.size()});
  int bad = 0;
  const auto compare = [&](const std::string& what, const std::function<Bytes(Communicator&)>& body) {
    std::vector<Bytes> threads(static_cast<size_t>(ranks.size()));
    run_local(ranks.size(), [&](Communicator& c) { threads[size_t(c.rank())] = body(c); });
    for (int repeat = 0; repeat < 2; ++repeat) {
      if (body(mesh[Axis::dp]) == threads[size_t(ranks.rank())]) continue;
      std::cout << fmt::format("rank {} of {}: {} differs from threads\n", ranks.rank(), ranks.size(), what);
      ++bad;
    }
  };
  for (const int64_t n : {1, 3, 65, 1000, 5001, 50001, 300007})
    for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32})
      if (n < 300000 || t == DType::f64)  // of more chunks than are under way at a time
        compare(fmt::format("{} {}", n, name_of(t)), [&](Communicator& c) { return all_collectives(c, t, n); });
  for (const int64_t n : {1, 900, 1000, 200001})
    compare(fmt::format("messages of {}", n), [&](Communicator& c) { return all_messages(c, n); });
  barrier(*mesh.world);
  return bad;
}

// Works begun on several axes at once, and waited for in another order on each rank.
int check_axes(MpiRanks& ranks, const Meshes& meshes) {
  const ProcessMesh mesh = meshes({.dp = 2, .tp = ranks.size() / 2});
  std::vector<double> a(10000, ranks.rank()), b(20000, ranks.rank()), c(3, 1);
  const auto whole = [](std::vector<double>& v) { return Tensor(v.data(), DType::f64, {int64_t(v.size())}); };
  std::vector<Work> works;
  works.push_back(mesh[Axis::dp].all_reduce(whole(a)));
  works.push_back(mesh[Axis::tp].all_reduce(whole(b)));
  works.push_back(mesh.world->all_reduce(whole(c)));
  for (size_t i = 0; i < 3; ++i) works[(i + size_t(ranks.rank())) % 3].wait();
  const int tp = mesh[Axis::tp].size(), dp_rank = ranks.rank() / tp;
  const bool good = a[9999] == 2 * (ranks.rank() % tp) + tp && c[2] == ranks.size() &&
                    b[19999] == tp * (dp_rank * tp) + tp * (tp - 1) / 2;
  if (!good) std::cout << fmt::format("rank {}: {} {} {}\n", ranks.rank(), a[9999], b[19999], c[2]);
  return good ? 0 : 1;
}

// The first rank does not call MPI until the second has all its data: its network thread must move it.
int check_goes_on_inside_kernels(MpiRanks& ranks, const std::string& file) {
  const ProcessMesh mesh = ranks.mesh({.dp = ranks.size()});
  const std::filesystem::path done = file + ".done";
  constexpr int64_t kCount = 3 << 20;
  int bad = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<float> x(kCount, float(1 + ranks.rank()));
    Work sum = mesh[Axis::dp].all_reduce({x.data(), DType::f32, {kCount}});
    if (ranks.rank() == 0) {
      mesh.progress->lend();
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!std::filesystem::exists(done) && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!std::filesystem::exists(done)) ++bad;
      mesh.progress->poll();
    }
    sum.wait();
    for (const float v : x) bad += v != 3;
    if (ranks.rank() == 1) std::ofstream(done) << "yes";
    barrier(*mesh.world);
    if (ranks.rank() == 0) std::filesystem::remove(done);
    barrier(*mesh.world);
  }
  return bad == 0 ? 0 : 1;
}

// --- what goes wrong ---

int reduce(Communicator& c, int64_t n, DType dtype = DType::f32) {
  Bytes x = numbers(c.rank(), dtype, n, 1);
  c.all_reduce({x.data(), dtype, {n}}).wait();
  return 0;
}

int mismatch(const ProcessMesh& mesh, int rank) {
  Communicator& c = *mesh.world;
  reduce(c, 1000);
  return rank == 1 ? reduce(c, 20001) : reduce(c, 20000);
}
int other_operation(const ProcessMesh& mesh, int rank) {
  Communicator& c = *mesh.world;
  if (rank != 1) return reduce(c, 100);
  Bytes mine(400), all(mine.size() * size_t(c.size()));
  c.all_gather({mine.data(), DType::f32, {100}}, {all.data(), DType::f32, {100 * c.size()}}).wait();
  return 0;
}
int message_mismatch(const ProcessMesh& mesh, int rank) {
  Bytes x(80000);
  if (rank == 0) mesh.world->send({x.data(), DType::f32, {20000}}, 1).wait();
  if (rank == 1) mesh.world->recv({x.data(), DType::f32, {10000}}, 0).wait();
  return rank < 2 ? 0 : reduce(*mesh.world, 1);
}
int stuck(const ProcessMesh& mesh, int rank) {
  Bytes x(80000);
  if (rank == 0) return reduce(*mesh.world, 30000);
  mesh.world->recv({x.data(), DType::f32, {20000}}, 0).wait();
  return 0;
}
int left(const ProcessMesh& mesh, int rank) { return rank == 1 ? 0 : reduce(*mesh.world, 5); }
int killed(const ProcessMesh& mesh, int rank) {
  reduce(*mesh.world, 100000);
  if (rank == 1) raise(SIGKILL);
  return reduce(*mesh.world, 100000);
}
int quits(const ProcessMesh& mesh, int rank) {
  if (rank == 1) _exit(0);
  return reduce(*mesh.world, 100000);
}
int stopped(const ProcessMesh& mesh, int rank) {
  reduce(*mesh.world, 100000);
  if (rank == 1) raise(SIGSTOP);
  return reduce(*mesh.world, 100000);
}
int sleeps(const ProcessMesh& mesh, int rank) {
  if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
  return reduce(*mesh.world, 100000);
}
int late(const ProcessMesh& mesh, int rank) {  // which is no failure
  if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
  return reduce(*mesh.world, 100000);
}
int throws(const ProcessMesh& mesh, int rank) {
  if (rank == 1) throw Error("no bread");
  return reduce(*mesh.world, 100000);
}

int throws_amid(const ProcessMesh& mesh, int rank) {
  Bytes x(100 << 20);
  Work sum = mesh.world->all_reduce({x.data(), DType::f32, {int64_t(x.size() / 4)}});
  for (int i = 0; i < 10; ++i) mesh.progress->poll();
  if (rank == 1) throw Error("no bread");
  sum.wait();
  return 0;
}

int run(MpiRanks& ranks, std::string name, const std::string& file) {
  const Meshes meshes{.ranks = ranks, .by_fabric = name.starts_with(kFabric)};
  if (meshes.by_fabric) name.erase(0, kFabric.size());
  if (name == "same") return check_same_as_threads(ranks, meshes);
  if (name == "axes") return check_axes(ranks, meshes);
  if (name == "lends") return check_goes_on_inside_kernels(ranks, file);
  const std::map<std::string, int (*)(const ProcessMesh&, int)> cases{{"mismatch", mismatch},
                                                                      {"other", other_operation},
                                                                      {"message", message_mismatch},
                                                                      {"stuck", stuck},
                                                                      {"left", left},
                                                                      {"killed", killed},
                                                                      {"quits", quits},
                                                                      {"stopped", stopped},
                                                                      {"sleeps", sleeps},
                                                                      {"late", late},
                                                                      {"throws", throws},
                                                                      {"throws amid", throws_amid}};
  const ProcessMesh mesh = meshes({.dp = ranks.size()});
  return cases.at(name)(mesh, ranks.rank());
}

// Lets all ranks report before the job ends; not for long, since some have nothing to report.
void wait_for_what_others_say(const std::string& file, int ranks) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < limit) {
    std::ifstream in(file);
    const std::string said(std::istreambuf_iterator<char>(in), {});
    int ends = 0;
    for (size_t at = said.find(">\n"); at != std::string::npos; at = said.find(">\n", at + 1)) ++ends;
    if (ends == ranks) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace
}  // namespace weft

int main(int, char** argv) {
  const std::string name = argv[1];
  setenv("OMPI_MCA_btl_tcp_flags", "send,inplace,need-ack,need-csum,hetero-rdma", 0);  // as apps/ranks.cpp
  weft::MpiRanks ranks(
      {.timeout_s = name == "sleeps" ? 2.0 : 600.0, .stopped_s = 1, .lends_on_one_host = name == "lends"});
  try {
    const int status = weft::run(ranks, name, argv[2]);
    ranks.finish();
    return status;
  } catch (const std::exception& e) {
    std::ofstream(argv[2], std::ios::app) << fmt::format("<{} says: {}>\n", ranks.rank(), e.what()) << std::flush;
    ranks.tell_failure(fmt::format("rank {} has failed: {}", ranks.rank(), e.what()));
    weft::wait_for_what_others_say(argv[2], ranks.size());
    ranks.abort(3);
  }
}
