// Whole runs whose tensors go by a fabric, as those of GPUs do: the same files to the bit.
#include <algorithm>
#include <map>
#include <mutex>

#include "comm/host_fabric.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/comm/fabric_mesh.h"

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

// A machine of the recipe's backend, each of whose ranks has a device.
Machine machine_by_fabric(const Recipe& recipe, testing::HostWires& wires) {
  Machine machine = machine_for(recipe);
  const auto memory = std::make_shared<DeviceMemory>();
  machine.memory = memory;
  machine.join = [memory, &wires](const ProcessMesh& host) {
    return over_fabric(host, {.fabric = std::make_shared<testing::HostFabric>(
                                  wires, fmt::format("device {}", host.world->rank()),
                                  [memory](const void* at) { return memory->holds(at); })})
        .mesh;
  };
  return machine;
}

void expect_same_files(const std::vector<std::string>& layout) {
  std::vector<std::string> overrides{"run.threads=1", "train.micro_batch_size=1", "train.train_iters=3",
                                     "optimizer.lr_warmup_iters=1"};
  overrides.insert(overrides.end(), layout.begin(), layout.end());
  const auto folder = std::filesystem::path(WEFT_SOURCE_DIR) / "tests/golden/llama-gqa";
  testing::TempDir dir;
  testing::HostWires wires;
  wires.most_staging = 1 << 14;
  const auto recipe_in = [&](const char* run) { return testing::golden_recipe(folder, dir / run, overrides); };
  testing::train(recipe_in("host"), machine_for(recipe_in("host")));
  testing::train(recipe_in("device"), machine_by_fabric(recipe_in("device"), wires));
  const std::string what = fmt::format("{}", fmt::join(layout, " "));
  EXPECT_GT(wires.exchanges, 100) << what;
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"}) {
    const std::string bytes = testing::slurp(dir / "host/checkpoints/step-3" / file);
    ASSERT_FALSE(bytes.empty()) << what;
    EXPECT_TRUE(testing::slurp(dir / "device/checkpoints/step-3" / file) == bytes) << what << ": " << file;
  }
}

TEST(FabricRunsSlow, HaveTheBitsOfThoseByTheHost) {
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {"parallel.dp=4", "parallel.zero_stage=3", "parallel.zero_shard_size=2"},
           {"parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "parallel.zero_stage=1"},
           {"parallel.pp=2", "parallel.pipeline_schedule=zbv"},
           {"parallel.pp=4"},
           {"parallel.dp=4", "parallel.zero_stage=2", "train.numerics=invariant"},
           {"parallel.dp=2", "parallel.tp=2", "optimizer.name=muon"}}) {
    std::vector<std::string> on_ref = layout;
    on_ref.emplace_back("run.backend=ref");
    expect_same_files(on_ref);
    const std::vector<std::string> backends = backends_here();
    if (std::find(backends.begin(), backends.end(), "cpu") == backends.end()) continue;
    std::vector<std::string> in_bf16 = layout;
    for (const char* more : {"run.backend=cpu", "train.precision=bf16"}) in_bf16.emplace_back(more);
    expect_same_files(in_bf16);
  }
}

}  // namespace
}  // namespace weft
