#include "weft/apps/step_floor.h"

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/train/matmul_rate.h"

namespace weft {
namespace {

bool is_attention(std::string_view op) { return op == Attention::kName || op == AttentionBackward::kName; }

std::string floor_line(const char* what, const FloorPart& part, const std::string& remark) {
  return fmt::format("{:<22} {:>10.2f} {:>10.2f} {:>8}{}\n", what, part.floor_s * 1e3, part.step_s * 1e3,
                     part.floor_s > 0 ? fmt::format("{:.3f}", part.step_s / part.floor_s) : "-", remark);
}

}  // namespace

StepFloor floor_of(const StepParts& parts, const MachineRates& rates) {
  WEFT_CHECK(rates.flops > 0 && rates.bytes > 0, "a floor at {} FLOP/s and {} bytes/s", rates.flops, rates.bytes);
  StepFloor floor;
  for (const OpTotals& o : parts.ops) {
    const bool computes = o.cost.flops > 0;
    FloorPart& part = is_attention(o.op) ? floor.attention : computes ? floor.products : floor.others;
    part.step_s += o.s;
    part.floor_s +=
        computes ? o.cost.flops / rates.flops : double(o.cost.bytes_read + o.cost.bytes_written) / rates.bytes;
  }
  return floor;
}

std::string to_table(const StepFloor& floor, double step_s, const MachineRates& rates) {
  return fmt::format("{:<22} {:>10} {:>10} {:>8}\n", "at the machine's rates", "floor ms", "step ms", "ratio") +
         floor_line("matrix products", floor.products, "   large ones " + flops_text(rates.flops)) +
         floor_line("attention", floor.attention, "") +
         floor_line("all other ops", floor.others, fmt::format("   {:.1f} GB/s", rates.bytes / 1e9)) +
         floor_line("whole step", {floor.total(), step_s}, "");
}

}  // namespace weft
