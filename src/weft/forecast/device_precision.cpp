#include "weft/forecast/device_precision.h"

#include "weft/base/error.h"

namespace weft {

PrecisionReason precision_on(const ClusterSpec& cluster, int64_t devices) {
  constexpr double kTeraflops = 1e12;
  if (const MeasuredRanks* measured = measured_of(cluster, devices)) {
    const double bf16 = measured->best_rate("bf16"), f32 = measured->best_rate("f32");
    return {bf16 > f32 ? PrecisionChoice::bf16 : PrecisionChoice::f32,
            fmt::format("products were measured at {:.3g} Tflop/s in bf16 and {:.3g} in f32", bf16 / kTeraflops,
                        f32 / kTeraflops)};
  }
  const ProductRates& peak = cluster.device.peak;
  if (peak.bits16 == 0) return {PrecisionChoice::f32, "the device has no rate in 16 bits"};
  const bool volta = cluster.device.name.starts_with("V100");
  return {volta ? PrecisionChoice::fp16 : PrecisionChoice::bf16,
          fmt::format("{:.4g} Tflop/s in 16 bits, f32 masters beside it{}{}", peak.bits16 / kTeraflops,
                      volta ? "; the device has no bf16" : "",
                      peak.fp8 > 0 ? "; weft does not train in the device's fp8 yet" : "")};
}

}  // namespace weft
