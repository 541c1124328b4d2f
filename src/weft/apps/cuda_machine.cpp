#include "weft/apps/cuda_machine.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/apps/cpu_machine.h"
#include "weft/base/error.h"
#include "weft/comm/fabric_mesh.h"
#include "weft/device/devices_of_ranks.h"
#include "weft/ops/cuda/cuda_device.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModuleVariable = "WEFT_CUDA_MODULE";  // names the file
constexpr const char* kCudnnVariable = "WEFT_CUDNN";         // off: attention by weft's own kernels alone
constexpr const char* kGraphsVariable = "WEFT_CUDA_GRAPHS";  // off: ops are given to the GPU one by one
constexpr const char* kCacheVariable = "WEFT_CUDA_CACHE";    // a folder, or off

// Beside the program, or in ../lib as it is installed.
std::vector<fs::path> places_of_module() {
  if (const char* named = std::getenv(kModuleVariable)) return {named};
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {here / kCudaModule, here.parent_path() / "lib" / kCudaModule};
}

std::string text_of(const std::vector<fs::path>& files) {
  std::string text;
  for (const fs::path& file : files) text += (text.empty() ? "" : ", ") + file.string();
  return text;
}

// Never closed: its code runs until the program ends.
void* open_module() {
  // NCCL would connect GPUs at the first collective of a kind, where each rank waits for the others, which may wait for
  // it on another axis. A setting of the user stays.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  const fs::path file = find_cuda_module();
  if (file.empty())
    throw Error(
        fmt::format("weft's module for GPUs is not in this build: there is no {}; build it where a CUDA toolkit "
                    "is (docs/gpu.md); {}",
                    text_of(places_of_module()), has_cpu() ? "there are cpu and ref" : "there is ref"));
  if (void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return module;
  throw Error(fmt::format("{}: {}; docs/gpu.md says which libraries it needs and how to name their folder",
                          file.string(), dlerror()));
}

template <class Function>
Function* function_of_module(const char* name) {
  static void* const module = open_module();
  auto* const found = reinterpret_cast<Function*>(dlsym(module, name));
  if (found == nullptr)
    throw Error(fmt::format("{} is of another weft than this program; build both anew", kCudaModule));
  return found;
}

bool is_on(const char* variable) {
  const char* const set = std::getenv(variable);
  const std::string_view says = set == nullptr ? "on" : set;
  if (says != "on" && says != "off") throw Error(fmt::format("{}={}: it may be on or off", variable, says));
  return says == "on";
}
CudnnUse wanted_of_cudnn(bool repeats) {
  if (!is_on(kCudnnVariable)) return CudnnUse::none;
  return repeats ? CudnnUse::repeatable : CudnnUse::any;
}

void note(const std::string& what) { std::cerr << "note: " + what + "\n"; }

std::shared_ptr<CudaDevice> open_device(int ordinal, bool repeats = true) {
  const CudaSettings settings{.cudnn = wanted_of_cudnn(repeats), .cache_folder = cuda_cache_folder(environment)};
  return std::shared_ptr<CudaDevice>(function_of_module<OpenCudaDevice>(kOpenCudaDevice)(ordinal, settings));
}

// Turns an error of f into a ConfigError: the recipe asks for what is missing.
template <class F>
auto or_refused(const F& f) {
  try {
    return f();
  } catch (const Error& e) { throw ConfigError(fmt::format("run.backend = \"cuda\": {}", e.what())); }
}

// Before a GPU is looked for: `auto` would else take a slip for one that is missing.
void check_variables() {
  or_refused([] {
    for (const char* variable : {kCudnnVariable, kGraphsVariable}) is_on(variable);
    cuda_cache_folder(environment);
  });
}

// The first rank says once how tensors go.
std::function<ProcessMesh(const ProcessMesh&)> join_by_fabric(const std::shared_ptr<CudaDevice>& device,
                                                              double timeout_s) {
  return [device, timeout_s, said = std::make_shared<bool>(false)](const ProcessMesh& host) {
    FabricOfRank mine{.fabric = nullptr, .timeout_s = timeout_s};
    try {
      mine.fabric = device->make_fabric();
    } catch (const Error& e) { mine.why_none = e.what(); }
    const FabricMesh joined = over_fabric(host, mine);
    if (host.world->rank() == 0 && !joined.note.empty() && !std::exchange(*said, true)) note(joined.note);
    return joined.mesh;
  };
}

// `warn`: told why ops do not go as CUDA graphs.
Machine machine_on(const std::shared_ptr<CudaDevice>& gpu, int threads, const std::shared_ptr<const Mover>& mover,
                   const Replayed::Warn& warn) {
  const bool graphs = is_on(kGraphsVariable);
  return {.description = fmt::format("GPU {}", gpu->ordinal()),
          .threads = threads,
          .workspace_model = gpu->workspace_model(),
          .memory = gpu->memory(),
          .mover = mover,
          .late = true,
          .device = fmt::format("GPU {}", gpu->ordinal()),
          .free_bytes = [gpu] { return gpu->free_bytes(); },
          .make_backend = [gpu, graphs, warn](Arena& workspace) -> std::unique_ptr<Backend> {
            auto backend = gpu->make_backend(workspace);
            if (!graphs) return backend;
            return std::make_unique<Replayed>(std::move(backend), warn);
          },
          .measure_matmul_rate = [gpu](DType dtype) { return gpu->measure_matmul_rate(dtype); },
          .measure_bandwidth = [gpu] { return gpu->measure_bandwidth(); },
          .make_library_matmuls = [] { return std::vector<std::function<void(const Matmul&)>>(); }};
}

}  // namespace

fs::path cuda_cache_folder(const Environment& env) {
  if (const auto named = env(kCacheVariable)) {
    if (*named == "off") return {};
    if (fs::path(*named).is_absolute()) return *named;
    throw Error(fmt::format("{}={}: it may be off or a whole path, /of/a/folder", kCacheVariable, *named));
  }
  for (const auto& [variable, inner] : {std::pair{"XDG_CACHE_HOME", "weft"}, std::pair{"HOME", ".cache/weft"}})
    if (const auto folder = env(variable); folder && fs::path(*folder).is_absolute()) return fs::path(*folder) / inner;
  return {};
}

fs::path find_cuda_module() {
  std::error_code error;
  for (const fs::path& file : places_of_module())
    if (fs::exists(file, error)) return file;
  return {};
}

Machine cuda_machine(int ordinal, int threads, const RanksOfGpus& ranks) {
  check_variables();
  return or_refused([&] {
    std::vector<std::shared_ptr<CudaDevice>> gpus{open_device(ordinal, ranks.repeat)};
    const DevicesOfRanks chosen = devices_of_ranks(gpus[0]->kinds(), gpus[0]->ordinal(), ranks.num_here);
    for (size_t i = 1; i < chosen.devices.size(); ++i) gpus.push_back(open_device(chosen.devices[i], ranks.repeat));
    for (const auto& gpu : gpus) gpu->begin();
    CudaMover between = gpus[0]->make_mover(chosen.devices, host_mover());
    const auto once = [said = std::make_shared<std::atomic<bool>>(false)](const std::string& what) {
      if (!said->exchange(true)) note(what);  // not by every rank
    };
    Machine machine = machine_on(gpus[0], threads, between.mover, once);
    machine.description = gpus[0]->description();
    if (!chosen.note.empty()) machine.notes.push_back(chosen.note);
    machine.notes.insert(machine.notes.end(), between.notes.begin(), between.notes.end());
    if (ranks.are_processes) machine.join = join_by_fabric(gpus[0], ranks.timeout_s);
    if (gpus.size() == 1) return machine;
    machine.description = fmt::format("{} x {}", gpus.size(), machine.description);
    for (const auto& gpu : gpus) machine.devices.push_back(machine_on(gpu, threads, between.mover, once));
    return machine;
  });
}

Machine cuda_machine_to_plan(bool repeats) {
  Machine machine;
  machine.description = "cuda, by its module alone: no GPU was looked for";
  machine.workspace_model = or_refused([&] {
    return std::shared_ptr<const WorkspaceModel>(
        function_of_module<MakeCudaWorkspace>(kMakeCudaWorkspace)(wanted_of_cudnn(repeats)));
  });
  return machine;
}

std::string why_no_cuda() {
  check_variables();
  try {
    open_device(0);
    return "";
  } catch (const Error& e) { return e.what(); }
}

}  // namespace weft
