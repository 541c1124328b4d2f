// A GPU, as the program sees it that loads weft's module for GPUs: no header of CUDA is needed for it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/device/arena.h"
#include "weft/device/fabric.h"
#include "weft/device/mover.h"
#include "weft/ops/replayed.h"

namespace weft {

// For attention: not at all, where it gives the same bits each time, or the fastest way it has.
enum class CudnnUse { none, repeatable, any };
struct CudaMover {
  std::shared_ptr<const Mover> mover;
  std::vector<std::string> notes;  // of GPUs that do not reach each other
};

class CudaDevice {
 public:
  virtual ~CudaDevice() = default;
  virtual int ordinal() const = 0;  // its number for CUDA
  // The kind of each GPU that CUDA shows; equal GPUs have equal texts: "NVIDIA H200, compute capability 9.0".
  virtual std::vector<std::string> kinds() const = 0;
  // Starts using the GPU. Throws Error, with its number, if it cannot: another process has exclusive use, or its memory
  // is full.
  virtual void begin() const = 0;
  virtual int64_t free_bytes() const = 0;
  // "NVIDIA H200, compute capability 9.0, driver 13.0, cuBLASLt 13.1, cuDNN 9.19.0"
  virtual std::string description() const = 0;
  virtual std::shared_ptr<Memory> memory() const = 0;
  virtual std::shared_ptr<const WorkspaceModel> workspace_model() const = 0;
  // Moves tensors between ranks that are threads, on these GPUs (this one included; all have begun). `host` moves what
  // the host reaches.
  virtual CudaMover make_mover(std::span<const int> gpus, std::shared_ptr<const Mover> host) const = 0;
  // Between ranks that are processes with a GPU of their own each. Throws Error, which says what is missing.
  virtual std::shared_ptr<Fabric> make_fabric() const = 0;
  // Ops run on a queue of its own, later than they are given (Backend::wait_all).
  virtual std::unique_ptr<RecordingBackend> make_backend(Arena& workspace) const = 0;
  virtual double measure_matmul_rate(DType dtype) const = 0;  // flop/s
  virtual double measure_bandwidth() const = 0;               // bytes/s
};

struct CudaSettings {
  CudnnUse cudnn = CudnnUse::repeatable;    // where the module knows it and it is there
  std::filesystem::path cache_folder = {};  // for what was measured on the GPU; empty: none
};
// The module's function for dlsym under kOpenCudaDevice. Throws Error "no NVIDIA driver ...", which says what is
// missing and what to do.
using OpenCudaDevice = CudaDevice*(int ordinal, const CudaSettings& settings);
inline constexpr const char* kOpenCudaDevice = "weft_open_cuda_device";
// Workspace sizes of its ops, for planning: needs no GPU and no driver. The caller deletes it.
using MakeCudaWorkspace = WorkspaceModel*(CudnnUse cudnn);
inline constexpr const char* kMakeCudaWorkspace = "weft_make_cuda_workspace";
inline constexpr const char* kCudaModule = "libweft_cuda.so";

}  // namespace weft
