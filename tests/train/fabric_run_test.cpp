// Whole runs whose tensors go by a fabric, as those of GPUs do: the same files to the bit.
#include <algorithm>
#include <map>
#include <mutex>

#include "comm/host_fabric.h"
#include "train/golden.h"
#include "train/late_backend.h"
#include "weft/apps/backends.h"
#include "weft/apps/bench_run.h"
#include "weft/comm/fabric_mesh.h"
#include "weft/comm/local_group.h"

namespace weft {
namespace {

// The host's, which knows what lies in it.
class DeviceMemory final : public Memory {
 public:
  std::byte* take(size_t bytes, const std::string& what) override {
    std::byte* const memory = host_memory()->take(bytes, what);
    const std::lock_guard lock(mutex_);
    ends_[memory] = memory + bytes;
    return memory;
  }
  void give(std::byte* memory, size_t bytes) override {
    {
      const std::lock_guard lock(mutex_);
      ends_.erase(memory);
    }
    host_memory()->give(memory, bytes);
  }
  bool holds(const void* at) const {
    const std::lock_guard lock(mutex_);
    const auto next = ends_.upper_bound(static_cast<const std::byte*>(at));
    return next != ends_.begin() && at < std::prev(next)->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, const std::byte*> ends_;
};

enum class Ops { at_once, late };

// A machine of the recipe's backend, each of whose ranks has a device. Where its ops are late, the host does not reach
// its memory, and who does not wait for the fabric is ahead of it.
Machine machine_by_fabric(const Recipe& recipe, testing::HostWires& wires, Ops ops) {
  Machine machine = machine_for(recipe);
  testing::HostFabric::Holds holds;
  if (ops == Ops::late) {
    machine = testing::apart(std::move(machine));
    holds = [](const void* at) { return testing::Guard::of_process()->has(at); };
    wires.lag = std::chrono::microseconds(500);
    wires.around = [](const auto& work) {
      const testing::Opened opened;
      work();
    };
  } else {
    const auto memory = std::make_shared<DeviceMemory>();
    machine.memory = memory;
    holds = [memory](const void* at) { return memory->holds(at); };
  }
  machine.join = [holds, &wires](const ProcessMesh& host) {
    return over_fabric(host, {.fabric = std::make_shared<testing::HostFabric>(
                                  wires, fmt::format("device {}", host.world->rank()), holds)})
        .mesh;
  };
  return machine;
}

void expect_same_files(const std::vector<std::string>& layout, Ops ops) {
  std::vector<std::string> overrides{"run.threads=1", "train.micro_batch_size=1", "train.train_iters=3",
                                     "optimizer.lr_warmup_iters=1"};
  overrides.insert(overrides.end(), layout.begin(), layout.end());
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  testing::TempDir dir;
  testing::HostWires wires;
  wires.most_staging = 1 << 14;
  const auto recipe_in = [&](const char* run) { return testing::golden_recipe(folder, dir / run, overrides); };
  testing::train(recipe_in("host"), machine_for(recipe_in("host")));
  testing::train(recipe_in("device"), machine_by_fabric(recipe_in("device"), wires, ops));
  const std::string what = fmt::format("{}{}", fmt::join(layout, " "), ops == Ops::late ? ", late" : "");
  EXPECT_GT(wires.exchanges, 100) << what;
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"}) {
    const std::string bytes = testing::slurp(dir / "host/checkpoints/step-3" / file);
    ASSERT_FALSE(bytes.empty()) << what;
    EXPECT_TRUE(testing::slurp(dir / "device/checkpoints/step-3" / file) == bytes) << what << ": " << file;
  }
}

const std::vector<std::vector<std::string>> kLayouts{
    {"parallel.dp=4", "parallel.zero_stage=3", "parallel.zero_shard_size=2"},
    {"parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "parallel.zero_stage=1"},
    {"parallel.pp=2", "parallel.pipeline_schedule=zbv"},
    {"parallel.pp=4"},
    {"parallel.dp=4", "parallel.zero_stage=2", "train.numerics=invariant"},
    {"parallel.dp=2", "parallel.tp=2", "optimizer.name=muon"},
    {"parallel.dp=2", "parallel.tp=2", "parallel.zero_stage=2", "optimizer.name=adamw8bit",
     "optimizer.min_8bit_size=600"}};

std::vector<std::string> with(std::vector<std::string> layout, const std::vector<std::string>& more) {
  layout.insert(layout.end(), more.begin(), more.end());
  return layout;
}

bool has_cpu() {
  const std::vector<std::string> backends = backends_here();
  return std::find(backends.begin(), backends.end(), "cpu") != backends.end();
}

TEST(FabricRunsSlow, HaveTheBitsOfThoseByTheHost) {
  for (const auto& layout : kLayouts) {
    expect_same_files(with(layout, {"run.backend=ref"}), Ops::at_once);
    if (has_cpu()) expect_same_files(with(layout, {"run.backend=cpu", "train.precision=bf16"}), Ops::at_once);
  }
}

// Ops and calls are put behind each other on queues, and no host waits between.
TEST(FabricRunsSlow, OfDevicesThatRunOpsLaterHaveThemToo) {
  for (const auto& layout : kLayouts) expect_same_files(with(layout, {"run.backend=ref"}), Ops::late);
  if (has_cpu())
    expect_same_files({"parallel.dp=2", "parallel.zero_stage=2", "run.backend=cpu", "train.precision=bf16",
                       "train.grad_reduce_dtype=bf16"},
                      Ops::late);
}

TEST(FabricRunsSlow, OfDevicesThatRunOpsLaterHaveTheBitsOfThoseByTheHost) {
  expect_same_files({"parallel.dp=2", "parallel.zero_stage=3", "run.backend=ref"}, Ops::late);
}

// How often the host waits for the device in a step of rank 0.
int64_t waits_of_step(const std::vector<std::string>& layout) {
  testing::TempDir dir;
  testing::HostWires wires;
  const Recipe recipe = testing::golden_recipe(
      std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa", dir / "run",
      with(layout, {"run.backend=ref", "run.threads=1", "train.micro_batch_size=1", "train.global_batch_size=16"}));
  int64_t waits = 0;
  const Machine machine = machine_by_fabric(recipe, wires, Ops::late);
  const auto body = [&](const ProcessMesh& mesh) {
    Machine mine = machine;
    const testing::LateBackend* device = nullptr;
    mine.make_backend = [&device, ref = machine_for(recipe)](Arena& workspace) {
      auto made = std::make_unique<testing::LateBackend>(ref.make_backend(workspace));
      device = made.get();
      return made;
    };
    const int rank = mesh.world->rank();
    BenchRun run(recipe, mine, plan_run(recipe, *machine.workspace_model, rank), mesh);
    run.step(run.rank.backend);
    const int64_t before = device->num_waits();
    run.step(run.rank.backend);
    if (rank == 0) waits = device->num_waits() - before;
  };
  run_local(mesh_sizes_of(recipe), body, *machine.mover);
  return waits;
}

// But for what it reads itself, at the end: losses and the norm, of its own and of other ranks; and where it is four
// micro-batches ahead of the device, which here does not begin before somebody waits.
TEST(FabricRunsSlow, NoHostWaitsForADeviceWithinAStep) {
  for (const auto& layout : std::vector<std::vector<std::string>>{{"parallel.dp=2", "parallel.zero_stage=3"},
                                                                  {"parallel.dp=2", "parallel.tp=2", "parallel.pp=2"}})
    EXPECT_LE(waits_of_step(layout), 10) << fmt::format("{}", fmt::join(layout, " "));
}

}  // namespace
}  // namespace weft
