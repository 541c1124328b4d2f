#include "weft/ops/cuda/nccl_fabric.h"

#include <cstring>

#include "weft/base/error.h"
#include "weft/ops/cuda/nccl_transport.cuh"
#include "weft/ops/cuda/rank_sum.h"

namespace weft {
namespace {

class NcclFabric final : public Fabric {
 public:
  explicit NcclFabric(int ordinal) : nccl_(nccl_library()), ordinal_(ordinal) {
    check_cuda(cudaGetDeviceProperties(&properties_, ordinal), "ask the GPU what it is");
  }
  std::string description() const override {
    const int v = nccl_.version;
    return fmt::format("NCCL {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }
  std::string device() const override {
    std::string text = "GPU-";
    for (const char byte : properties_.uuid.bytes) text += fmt::format("{:02x}", unsigned(static_cast<uint8_t>(byte)));
    return text;
  }
  int64_t free_bytes() const override {
    check_cuda(cudaSetDevice(ordinal_), "use the GPU");
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "ask the GPU for its free memory");
    return int64_t(free);
  }
  int most_ranks() const override { return gpu::kMostRanks; }
  bool holds(const void* at) const override {
    cudaPointerAttributes found;
    check_cuda(cudaPointerGetAttributes(&found, at), "ask where a tensor lies");
    return found.type == cudaMemoryTypeDevice;
  }

  size_t name_bytes() const override { return sizeof(ncclUniqueId); }
  void make_name(std::span<std::byte> name) override {
    ncclUniqueId id;
    WEFT_CHECK(name.size() == sizeof id, "room of {} bytes for a name of NCCL", name.size());
    nccl_.check(nccl_.get_unique_id(&id), "name a group of GPUs");
    std::memcpy(name.data(), &id, sizeof id);
  }
  std::unique_ptr<Transport> connect(const End& end) override {
    auto transport = std::make_unique<NcclTransport>(nccl_, ordinal_);
    transport->connect(end);
    return transport;
  }

 private:
  const NcclLibrary& nccl_;
  const int ordinal_;
  cudaDeviceProp properties_ = {};
};

}  // namespace

std::shared_ptr<Fabric> make_nccl_fabric(int ordinal) { return std::make_shared<NcclFabric>(ordinal); }

}  // namespace weft
