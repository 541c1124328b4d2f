#include "weft/apps/cpu_machine.h"

#include <dnnl.hpp>
#include <memory>

#include "weft/base/error.h"
#include "weft/ops/cpu/cpu_backend.h"
#include "weft/ops/cpu/cpu_features.h"
#include "weft/ops/cpu/cpu_workspace.h"
#include "weft/ops/cpu/matmul.h"
#include "weft/ops/cpu/matmul_dnnl.h"
#include "weft/ops/cpu/omp_threads.h"
#include "weft/ops/cpu/peak.h"

namespace weft {
namespace {

constexpr size_t kBandwidthBytes = size_t{1} << 28;  // far beyond the caches

std::string cpu_description() {
  return fmt::format("{} kernels, oneDNN {}.{}.{}", vector_kernels(), DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
                     DNNL_VERSION_PATCH);
}

// oneDNN's product for each op, with memory of its own; weft's where oneDNN has none.
std::function<void(const Matmul&)> library_matmul(int threads) {
  auto dnnl = std::make_shared<DnnlMatmul>(threads, Numerics::fast);
  auto own = std::make_shared<CpuMatmul>(threads, Numerics::fast);
  auto workspace = std::make_shared<std::vector<std::byte>>();
  return [dnnl, own, workspace](const Matmul& op) {
    const bool supported = dnnl->supports(op);
    const size_t bytes = size_t(supported ? dnnl->workspace_bytes(op) : own->workspace_bytes(op)) + kArenaAlignment;
    if (workspace->size() < bytes) workspace->resize(bytes);
    void* aligned = workspace->data();
    size_t space = workspace->size();
    auto* memory = static_cast<std::byte*>(std::align(kArenaAlignment, bytes - kArenaAlignment, aligned, space));
    supported ? dnnl->run(op, memory) : own->run(op, memory);
  };
}

// oneDNN's sgemm, which packs into memory of its own. A bias is left out.
void library_sgemm(int threads, const Matmul& op) {
  const OmpThreads team(threads);
  dnnl_sgemm(op.trans_a ? 'T' : 'N', op.trans_b ? 'T' : 'N', op.m(), op.n(), op.k(), 1, op.a.as<float>(),
             op.a.row_stride, op.b.as<float>(), op.b.row_stride, op.accumulate ? 1 : 0, op.out.as<float>(),
             op.out.row_stride);
}

}  // namespace

bool has_cpu() { return true; }

void limit_cpu(const std::optional<std::string>& isa) {
  if (!isa) return;
  const std::optional<CpuIsa> most = cpu_isa_named(*isa);
  if (!most)
    throw ConfigError(
        fmt::format("{}={} is no kind of kernels; there are {}", kCpuIsaVariable, *isa, fmt::join(kCpuIsaNames, ", ")));
  if (*most > isa_of_this_cpu())
    throw ConfigError(fmt::format("{}={}: this CPU lacks it; the most that it has is {}", kCpuIsaVariable, *isa,
                                  name_of(isa_of_this_cpu())));
  limit_kernels(*most);
}

bool cpu_multiplies_bf16() { return isa_of_kernels() >= CpuIsa::avx512_bf16; }

void need_cpu(std::string_view) {}

double measure_cpu_bandwidth(int threads) {
  std::vector<std::byte> memory(kBandwidthBytes);
  return measure_memory_bandwidth(threads, memory);
}

std::vector<std::function<void(const Matmul&)>> cpu_library_matmuls(int threads) {
  return {library_matmul(threads), [primitive = library_matmul(threads), threads](const Matmul& op) {
            if (op.a.dtype == DType::f32)
              library_sgemm(threads, op);
            else
              primitive(op);
          }};
}

Machine cpu_machine(int threads, Numerics numerics) {
  const CpuSpec spec{.threads = threads, .numerics = numerics};
  return {.description = fmt::format("cpu, {} thread{}, {}", threads, threads == 1 ? "" : "s", cpu_description()),
          .threads = threads,
          .workspace_model = std::make_shared<CpuWorkspace>(spec),
          .make_backend = [spec](Arena& workspace) { return std::make_unique<CpuBackend>(spec, workspace); },
          .measure_matmul_rate = [threads](DType dtype) { return measure_matmul_flops(threads, dtype); },
          .measure_bandwidth = [threads] { return measure_cpu_bandwidth(threads); },
          .make_library_matmuls = [threads] { return cpu_library_matmuls(threads); }};
}

std::string cpu_kernel_of(const Matmul& op, int threads, Numerics numerics) {
  return CpuMatmul(threads, numerics).kernel_of(op);
}
bool cpu_has_tiles() { return isa_of_kernels() == CpuIsa::amx; }
std::string other_cpu_kernels() { return fmt::format("weft's, {}", vector_kernels()); }

}  // namespace weft
