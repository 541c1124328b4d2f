// Instead of cpu_machine.cpp, in a build without the libraries of the kernels for CPUs: WEFT_WITHOUT, of CMake.
#include "weft/apps/cpu_machine.h"
#include "weft/base/not_built.h"

namespace weft {

bool has_cpu() { return false; }
void limit_cpu(const std::optional<std::string>& isa) {
  if (isa) throw NotBuilt(kCpuIsaVariable, WEFT_WITHOUT);
}
bool cpu_multiplies_bf16() { return false; }

void need_cpu(std::string_view other) {
  throw NotBuilt("run.backend = \"cpu\"", WEFT_WITHOUT, fmt::format("set run.backend = \"{}\"", other));
}

Machine cpu_machine(int, Numerics) { throw NotBuilt("run.backend = \"cpu\"", WEFT_WITHOUT); }
double measure_cpu_bandwidth(int) { throw NotBuilt("what measures the speed of memory", WEFT_WITHOUT); }
std::vector<std::function<void(const Matmul&)>> cpu_library_matmuls(int) {
  throw NotBuilt("what products are measured against", WEFT_WITHOUT);
}
std::string cpu_kernel_of(const Matmul&, int, Numerics) { throw NotBuilt("run.backend = \"cpu\"", WEFT_WITHOUT); }
bool cpu_has_tiles() { throw NotBuilt("run.backend = \"cpu\"", WEFT_WITHOUT); }
std::string other_cpu_kernels() { throw NotBuilt("run.backend = \"cpu\"", WEFT_WITHOUT); }

}  // namespace weft
