#include "weft/ops/cpu/cpu_features.h"

#include <hwy/targets.h>

#include <algorithm>
#include <dnnl.hpp>

#include "weft/base/error.h"
#include "weft/ops/cpu/matmul_f32_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weft {
namespace {

#if defined(__x86_64__)
// Linux keeps a process from tiles until it has asked for the memory that they need on every switch of threads.
bool has_amx() {
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;  // of CPUID 7, EDX
  constexpr long kRequest = 0x1023, kTileData = 18;       // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kBf16) == 0 || (edx & kTile) == 0) return false;
  return ::syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

CpuIsa find_isa() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuIsa::portable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return CpuIsa::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return CpuIsa::avx512;
  return has_amx() ? CpuIsa::amx : CpuIsa::avx512_bf16;
}

dnnl::cpu_isa isa_of_library(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::portable:
      return dnnl::cpu_isa::sse41;  // the least that it has
    case CpuIsa::avx2:
      return dnnl::cpu_isa::avx2;
    case CpuIsa::avx512:
      return dnnl::cpu_isa::avx512_core;
    case CpuIsa::avx512_bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case CpuIsa::amx:
      return dnnl::cpu_isa::avx512_core_amx;
  }
  return dnnl::cpu_isa::all;
}

// The targets of Highway that need no more than `isa`.
int64_t targets_within(CpuIsa isa) {
  int64_t targets = HWY_STATIC_TARGET;
  if (isa >= CpuIsa::avx2) targets |= HWY_AVX2 | HWY_SSE4 | HWY_SSSE3;
  if (isa >= CpuIsa::avx512) targets |= HWY_AVX3;
  return targets;
}
#else
CpuIsa find_isa() { return CpuIsa::portable; }
#endif

}  // namespace

std::optional<CpuIsa> cpu_isa_named(std::string_view name) {
  const auto found = std::find(kCpuIsaNames.begin(), kCpuIsaNames.end(), name);
  if (found == kCpuIsaNames.end()) return {};
  return CpuIsa(found - kCpuIsaNames.begin());
}

CpuIsa isa_of_this_cpu() {
  static const CpuIsa isa = find_isa();  // of the CPU: no state
  return isa;
}

// oneDNN remembers the limit: it has one for the process in any case.
CpuIsa isa_of_kernels() {
#if defined(__x86_64__)
  const int library = int(dnnl::get_effective_cpu_isa());
  CpuIsa isa = isa_of_this_cpu();
  const auto contains = [library](CpuIsa i) { return (library & int(isa_of_library(i))) == int(isa_of_library(i)); };
  while (isa > CpuIsa::portable && !contains(isa)) isa = CpuIsa(int(isa) - 1);
  return isa;
#else
  return CpuIsa::portable;
#endif
}

void limit_kernels(CpuIsa most) {
  WEFT_CHECK(most <= isa_of_this_cpu(), "this CPU has no {}", name_of(most));
#if defined(__x86_64__)
  if (dnnl::set_max_cpu_isa(isa_of_library(most)) != dnnl::status::success)
    throw ConfigError(fmt::format("kernels cannot be limited to {}: oneDNN has been used already", name_of(most)));
  hwy::DisableTargets(~targets_within(most));
  (void)vector_kernels();  // Highway's first choice is made here, by one thread
#endif
}

std::string_view vector_kernels() { return f32_kernels().target; }

}  // namespace weft
