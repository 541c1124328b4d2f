// The instructions that kernels for CPUs are chosen by.
#pragma once
#include <array>
#include <optional>
#include <string_view>

namespace weft {

// Each has those before it. `portable` is what every CPU has that this program was compiled for: on arm64, NEON.
// avx2: with FMA. avx512: F, BW, CD, DQ and VL. amx: tiles of bf16, which the system lets this process use.
enum class CpuIsa { portable, avx2, avx512, avx512_bf16, amx };

inline constexpr std::array<std::string_view, 5> kCpuIsaNames{"portable", "avx2", "avx512", "avx512_bf16", "amx"};
constexpr std::string_view name_of(CpuIsa isa) { return kCpuIsaNames[size_t(isa)]; }
std::optional<CpuIsa> cpu_isa_named(std::string_view name);

// What this CPU has and the system lets a process use. Asks for the permission to use AMX, once, which the whole
// process then has.
CpuIsa isa_of_this_cpu();

// What kernels of this process may use: that, or less where limit_kernels has said so.
CpuIsa isa_of_kernels();

// Limits the kernels of the whole process: Highway's targets and oneDNN's, whose masks there are one of in a process,
// and all that ask isa_of_kernels(). Call it before any kernel runs, and before isa_of_kernels(). This CPU
// has `most`. Throws ConfigError where oneDNN has been used already. Nobody but tests
// calls hwy::SupportedTargets(): Highway 1.0 then forgets the limit until its next choice.
void limit_kernels(CpuIsa most);

// The kind of CPU for which the vectorised kernels that run are compiled: F32Kernels::target.
std::string_view vector_kernels();

}  // namespace weft
