// The cores of this host, by weft's kernels for them and oneDNN's. cpu_machine.cpp is the only file that includes
// those; in a build without their libraries, cpu_machine_missing.cpp stands in its place.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/ops/numerics.h"
#include "weft/train/machine.h"

namespace weft {

bool has_cpu();
// Throws NotBuilt, which names another backend, where run.backend = "cpu" is not in this build of weft.
void need_cpu(std::string_view other);

// Limits which kernels this process runs on the cores, to see what others do or to test them: "portable", "avx2",
// "avx512", "avx512_bf16" or "amx"; none: no limit. Call it before any machine is made. Throws ConfigError where there
// is no such limit or this CPU lacks it.
inline constexpr const char* kCpuIsaVariable = "WEFT_CPU_ISA";
void limit_cpu(const std::optional<std::string>& isa);

// Whether the kernels of this process have instructions for products in bf16.
bool cpu_multiplies_bf16();

// These need it.
Machine cpu_machine(int threads, Numerics numerics);
// Bytes per second to and from memory, as an optimizer's step does.
double measure_cpu_bandwidth(int threads);
// The ways in which a library does a product: what `weft bench` measures against. A bias is left out.
std::vector<std::function<void(const Matmul&)>> cpu_library_matmuls(int threads);
// Whether attention and products of experts in bf16 run on matrix units (AMX).
bool cpu_has_tiles();
// Whose kernel does a product, and by which instructions: "weft's, AVX3". That of all other ops.
std::string cpu_kernel_of(const Matmul& op, int threads, Numerics numerics);
std::string other_cpu_kernels();

}  // namespace weft
