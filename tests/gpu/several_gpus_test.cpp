// Ranks with a GPU of their own each, as processes and as threads: the bits of the host's communicators, and of ranks
// that share a GPU. Skipped where there are fewer than two GPUs.
#include <atomic>

#include "apps/program.h"
#include "comm/same_collectives.h"
#include "gpu/gpu.h"
#include "train/golden.h"
#include "weft/apps/cuda_machine.h"
#include "weft/comm/local_group.h"

namespace weft {
namespace {

using testing::Values;

constexpr const char* kTooFew = "needs two GPUs, and NCCL";

// f(host's mesh, mesh by GPUs, machine) on ranks that are threads with GPUs 0, 1, ...; false where they have none each.
bool on_gpus(const MeshSizes& sizes,
             const std::function<void(const ProcessMesh&, const ProcessMesh&, const Machine&)>& f) {
  setenv("WEFT_CUDA_MODULE", testing::cuda_module_file(), 0);
  std::atomic<bool> have{true};
  run_local(sizes, [&](const ProcessMesh& host) {
    const Machine machine = cuda_machine(host.world->rank(), 1, {.are_processes = true, .timeout_s = 60});
    const ProcessMesh mesh = machine.join(host);
    if (mesh.axes == host.axes)
      have = false;
    else
      f(host, mesh, machine);
  });
  return have;
}

// As apps/ranks.cpp, of processes: before the first call of CUDA.
void let_kernels_wait_for_other_gpus() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

#define WEFT_NEEDS_CUDA()                                                                          \
  let_kernels_wait_for_other_gpus();                                                               \
  if (testing::gpu_backend() != "cuda") GTEST_SKIP() << "WEFT_TEST_BACKEND has no GPU for a rank"; \
  WEFT_NEEDS_GPU()

TEST(SeveralGpus, CollectivesHaveTheBitsOfTheHosts) {
  WEFT_NEEDS_CUDA();
  const bool have = on_gpus({.tp = 2}, [](const ProcessMesh& host, const ProcessMesh& mesh, const Machine& machine) {
    for (const int64_t n : {int64_t{1}, int64_t{4099}, int64_t{33000}, int64_t{20'000'001}}) {  // more than the staging
      for (const DType t : testing::kSums) {
        if (t == DType::f64 && n > 1'000'000) continue;
        Arena arena("tensors", 8 * n * size_of(t) + (1 << 20), machine.memory);
        testing::SameCollectives(host[Axis::tp], mesh[Axis::tp], testing::place_in(arena, *machine.mover)).expect(t, n);
      }
    }
  });
  if (!have) GTEST_SKIP() << kTooFew;
}

TEST(SeveralGpus, MessagesPassEachOther) {
  WEFT_NEEDS_CUDA();
  const bool have = on_gpus({.pp = 2}, [](const ProcessMesh&, const ProcessMesh& mesh, const Machine& machine) {
    constexpr int64_t kElements = 5'000'000;
    Arena arena("tensors", 8 * kElements * 4, machine.memory);
    const testing::Place place = testing::place_in(arena, *machine.mover);
    const int me = mesh.pp->rank(), peer = 1 - me;
    std::vector<Work> sent;
    for (int i = 0; i < 3; ++i) {
      Values mine(DType::f32, kElements + i, me);
      sent.push_back(mesh.pp->send(place.put(mine), peer));
    }
    for (int i = 0; i < 3; ++i) {
      Values got(DType::f32, kElements + i, 7);
      const Tensor to = place.put(got);
      mesh.pp->recv(to, peer).wait();
      place.take_back(got, to);
      EXPECT_TRUE(got == Values(DType::f32, kElements + i, peer)) << i;
    }
    for (Work& w : sent) w.wait();
  });
  if (!have) GTEST_SKIP() << kTooFew;
}

// Each process has a GPU, and so has each thread.
TEST(SeveralGpus, ProcessesEqualThreadsToTheBit) {
  WEFT_NEEDS_CUDA();
  const auto golden = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  for (const std::vector<std::string>& layout :
       std::vector<std::vector<std::string>>{{"parallel.dp=2", "parallel.zero_stage=3"},
                                             {"parallel.tp=2", "train.precision=f32"},
                                             {"parallel.pp=2", "parallel.pipeline_schedule=zbv"}}) {
    testing::TempDir dir;
    testing::spill(dir / "r.toml", fmt::format("[model]\npath = \"{}\"\n[data]\ntrain = [\"{}\"]\n", golden.string(),
                                               (golden / "tokens.bin").string()));
    const auto train = [&](const std::string& ranks) {
      std::vector<std::string> words{"train",
                                     (dir / "r.toml").string(),
                                     "run.dir=" + (dir / ranks).string(),
                                     "run.ranks=" + ranks,
                                     "run.backend=cuda",
                                     "train.seq_length=16",
                                     "train.global_batch_size=8",
                                     "train.micro_batch_size=1",
                                     "train.train_iters=6",
                                     "optimizer.lr_warmup_iters=1"};
      words.insert(words.end(), layout.begin(), layout.end());
      return testing::weft(words);
    };
    const std::string what = fmt::format("{}", fmt::join(layout, " "));
    const testing::Finished processes = train("mpi");
    for (const char* missing : {"through the host", "there was no MPI", "needs mpirun"})
      if (processes.err.find(missing) != std::string::npos) GTEST_SKIP() << kTooFew << ", and MPI: " << processes.err;
    EXPECT_NE(processes.err.find("from GPU to GPU"), std::string::npos) << what << processes.err;
    ASSERT_EQ(processes.status, 0) << what << processes.err;
    ASSERT_EQ(train("local").status, 0) << what;
    for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"}) {
      const std::string bytes = testing::slurp(dir / "mpi/checkpoints/step-6" / file);
      EXPECT_FALSE(bytes.empty()) << what;
      EXPECT_TRUE(bytes == testing::slurp(dir / "local/checkpoints/step-6" / file)) << what << ": " << file;
    }
  }
}

TEST(SeveralGpus, ThreadsWithAGpuEachHaveTheBitsOfOnesThatShareOne) {
  WEFT_NEEDS_CUDA();
  const auto golden = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {"parallel.dp=2", "parallel.zero_stage=3"},
           {"parallel.tp=2", "train.precision=f32"},
           {"parallel.pp=2", "parallel.pipeline_schedule=zbv"},
           {"parallel.dp=2", "parallel.tp=2", "parallel.zero_stage=1", "optimizer.name=muon"},
           {"parallel.dp=4", "train.grad_reduce_dtype=bf16"}}) {
    const std::string what = fmt::format("{}", fmt::join(layout, " "));
    testing::TempDir dir;
    const auto recipe_in = [&](const char* run) {
      std::vector<std::string> overrides{"run.backend=cuda", "run.threads=1", "train.train_iters=4",
                                         "optimizer.lr_warmup_iters=1", "train.micro_batch_size=1"};
      overrides.insert(overrides.end(), layout.begin(), layout.end());
      return testing::golden_recipe(golden, dir / run, overrides);
    };
    const Machine several = testing::gpu_machine_for(recipe_in("several"));
    if (several.devices.size() < 2) GTEST_SKIP() << "needs two GPUs that are alike: " << several.description;
    EXPECT_TRUE(several.description.starts_with(fmt::format("{} x ", several.devices.size()))) << several.description;
    testing::train(recipe_in("several"), several);
    testing::train(recipe_in("one"), testing::gpu_machine());
    for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"}) {
      const std::string bytes = testing::slurp(dir / "one/checkpoints/step-4" / file);
      ASSERT_FALSE(bytes.empty()) << what;
      EXPECT_TRUE(bytes == testing::slurp(dir / "several/checkpoints/step-4" / file)) << what << ": " << file;
    }
  }
}

// As a benchmark may, or a test: ops and copies set the thread's GPU themselves.
TEST(SeveralGpus, AThreadMayUseThemInTurns) {
  WEFT_NEEDS_CUDA();
  Recipe two;
  two.run.backend = BackendKind::cuda;
  two.parallel.dp = 2;
  const Machine machine = testing::gpu_machine_for(two);
  if (machine.devices.size() < 2) GTEST_SKIP() << "needs two GPUs that are alike: " << machine.description;
  std::vector<std::unique_ptr<Arena>> arenas;
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<Tensor> tensors;
  constexpr int64_t kElements = 100'000;
  for (const Machine& one : machine.devices) {
    arenas.push_back(std::make_unique<Arena>("workspace", 1 << 20, one.memory));
    backends.push_back(one.make_backend(*arenas.back()));
    arenas.push_back(std::make_unique<Arena>("tensors", kElements * 4 + 64, one.memory));
    tensors.push_back(arenas.back()->alloc(DType::f32, {kElements}));
  }
  std::vector<float> ones(kElements, 1.0f), found(kElements);
  for (int round = 0; round < 3; ++round) {
    for (const Tensor& x : tensors) machine.mover->copy(x.data, ones.data(), x.bytes());
    for (size_t d = 0; d < tensors.size(); ++d)
      backends[d]->run(Axpby{.x = tensors[d], .y = tensors[d], .out = tensors[d], .a = double(d), .b = 1});
    for (size_t d = 0; d < tensors.size(); ++d) backends[d]->wait_all();
    for (size_t d = 0; d < tensors.size(); ++d) {
      machine.mover->copy(found.data(), tensors[d].data, tensors[d].bytes());
      EXPECT_EQ(found, std::vector<float>(kElements, float(d + 1)));
    }
  }
  backends.clear();
}

}  // namespace
}  // namespace weft
