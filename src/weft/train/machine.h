// What a run needs of the machine it is on. Made by apps, which alone knows which backends were built.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/comm/host_mover.h"
#include "weft/comm/process_mesh.h"
#include "weft/device/arena.h"
#include "weft/ops/backend.h"
#include "weft/sharding/param.h"

namespace weft {

struct Machine {
  std::string description;              // "cpu, 2 threads, AVX3_SPR, oneDNN 2.6.3"
  std::vector<std::string> notes = {};  // warnings, to be printed once
  int threads = 1;
  std::shared_ptr<const WorkspaceModel> workspace_model;
  std::shared_ptr<Memory> memory = host_memory();     // of all tensors
  std::shared_ptr<const Mover> mover = host_mover();  // of tensors between ranks, and between them and the host
  // Its backends run ops asynchronously: communicators, too, must wait for them.
  bool late = false;
  // The device's name ("GPU 1"), and its free memory in bytes at the moment; empty for the host.
  std::string device = {};
  std::function<int64_t()> free_bytes = {};
  // For ranks that are processes: makes the mesh that moves its tensors from the host's mesh. Collective; called after
  // every rank has planned.
  std::function<ProcessMesh(const ProcessMesh& host)> join = [](const ProcessMesh& host) { return host; };
  // A backend whose kernels take their temporaries from `workspace`.
  std::function<std::unique_ptr<Backend>(Arena& workspace)> make_backend;
  // Rate of large matrix products in this dtype, in flop/s: measured once, in about 0.1 s. 0 where it means nothing.
  std::function<double(DType)> measure_matmul_rate;
  // For benchmarks: memory traffic in bytes/s as an optimizer makes it (four arrays read, three written), and the
  // library's own matrix products (each of its ways), that backends are measured against.
  std::function<double()> measure_bandwidth;
  std::function<std::vector<std::function<void(const Matmul&)>>()> make_library_matmuls;
  // If ranks are threads on several devices: one machine per device, all with this one's mover. This machine then
  // stands for all ranks, and its device is rank 0's.
  std::vector<Machine> devices = {};
  // Where ranks are threads of one process, on its cores: a machine with the threads of all stages of a pipeline, for
  // passes that are in one stage at a time. None: a rank has its own threads alone.
  std::shared_ptr<const Machine> of_stages = {};
  const Machine& of_rank(int rank) const { return devices.empty() ? *this : devices[size_t(rank) % devices.size()]; }
};

}  // namespace weft
