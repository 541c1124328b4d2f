#include "weft/apps/cuda_machine.h"

#include <dlfcn.h>

#include <array>

#include "weft/apps/cpu_machine.h"
#include "weft/base/error.h"
#include "weft/ops/cuda/cuda_device.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Beside the program, or in ../lib as it is installed.
std::array<fs::path, 2> module_places() {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {here / kCudaModule, here.parent_path() / "lib" / kCudaModule};
}

// It stays open: code of it runs until the end.
void* open_module() {
  const fs::path file = find_cuda_module();
  if (file.empty())
    throw ConfigError(
        fmt::format("run.backend = \"cuda\" is not in this build of weft: there is no {}, {}; build it where a CUDA "
                    "toolkit is (docs/gpu.md); {}",
                    module_places()[0].string(), module_places()[1].string(),
                    has_cpu() ? "there are cpu and ref" : "there is ref"));
  if (void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return module;
  throw ConfigError(
      fmt::format("run.backend = \"cuda\": {}: {}; docs/gpu.md says which libraries it needs and how to "
                  "name their folder",
                  file.string(), dlerror()));
}

std::shared_ptr<CudaDevice> open_device(int ordinal) {
  static void* const module = open_module();
  auto* const open = reinterpret_cast<OpenCudaDevice*>(dlsym(module, kOpenCudaDevice));
  if (open == nullptr)
    throw ConfigError(
        fmt::format("run.backend = \"cuda\": {} is of another weft than this program; build both anew", kCudaModule));
  try {
    return std::shared_ptr<CudaDevice>(open(ordinal));
  } catch (const Error& e) { throw ConfigError(fmt::format("run.backend = \"cuda\": {}", e.what())); }
}

}  // namespace

fs::path find_cuda_module() {
  std::error_code error;
  for (const fs::path& file : module_places())
    if (fs::exists(file, error)) return file;
  return {};
}

Machine cuda_machine(int ordinal, int threads) {
  const auto device = open_device(ordinal);
  return {.description = device->description(),
          .threads = threads,
          .workspace_model = device->workspace_model(),
          .memory = device->memory(),
          .late = true,
          .make_backend = [device](Arena& workspace) { return device->make_backend(workspace); },
          .measure_matmul_rate = [device](DType dtype) { return device->measure_matmul_rate(dtype); },
          .measure_bandwidth = [device] { return device->measure_bandwidth(); },
          .make_library_matmuls = [] { return std::vector<std::function<void(const Matmul&)>>(); }};
}

bool has_cuda() {
  try {
    open_device(0);
    return true;
  } catch (const ConfigError&) { return false; }
}

}  // namespace weft
