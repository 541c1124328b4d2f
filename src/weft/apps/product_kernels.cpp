#include "weft/apps/product_kernels.h"

#include <fmt/format.h>

#include <map>

#include "weft/apps/cpu_machine.h"
#include "weft/ops/cost.h"

namespace weft {

std::vector<ProductKernels> kernels_of(const std::vector<Matmul>& products, int threads, Numerics numerics) {
  std::map<std::pair<DType, ProductShape>, std::string> kernels;
  std::map<std::pair<std::string_view, std::string>, double> flops;
  double all = 0;
  for (const Matmul& op : products) {
    std::string& kernel = kernels[{op.a.dtype, shape_of(op)}];
    if (kernel.empty()) kernel = cpu_kernel_of(op, threads, numerics);
    flops[{name_of(op.a.dtype), kernel}] += flops_of(op);
    all += flops_of(op);
  }
  std::vector<ProductKernels> list;
  for (const auto& [what, part] : flops)
    list.push_back({.dtype = std::string(what.first), .kernel = what.second, .part = part / all});
  return list;
}

std::vector<std::string> lines_of_other_kernels(DType compute) {
  std::vector<std::string> lines;
  if (compute == DType::bf16 && cpu_has_tiles()) lines.push_back("attention and products of experts: weft's, AMX");
  lines.push_back("all other ops: " + other_cpu_kernels());
  return lines;
}

std::string to_string(const ProductKernels& k) {
  return fmt::format("{} products: {} ({:.0f} % of the arithmetic of products)", k.dtype, k.kernel, k.part * 100);
}

}  // namespace weft
