#include "weft/train/matmul_rate.h"

#include <fmt/format.h>

namespace weft {
namespace {

constexpr double kWorthEnd_s = 30;    // of a run: a measurement is about 0.1 s
constexpr double kMuchBetter = 1.15;  // machines differ from themselves by some percent

}  // namespace

std::string flops_text(double flops_per_s) {
  return flops_per_s < 1e12 ? fmt::format("{:.1f} GFLOP/s", flops_per_s / 1e9)
                            : fmt::format("{:.2f} TFLOP/s", flops_per_s / 1e12);
}

MatmulRate::MatmulRate(std::function<double()> measure, bool may_repeat)
    : measure_(std::move(measure)), may_repeat_(may_repeat), rate_(measure_()) {}

bool MatmulRate::measure_again() {
  const double now = may_repeat_ ? measure_() : 0;
  const bool better = now > rate_;
  rate_ = better ? now : rate_;
  return better;
}

double MatmulRate::mfu(double flops, double seconds) {
  if (!(rate_ > 0) || !(seconds > 0)) return 0;
  const double step_rate = flops / seconds;
  if (step_rate <= rate_ || ++num_above_ < next_above_) return step_rate / rate_;
  next_above_ *= 10;
  const double before = rate_;
  if (measure_again())
    note_ = fmt::format("MFU is of {} from here on, and was of {} before: {}", flops_text(rate_), flops_text(before),
                        kWhyAboveOne);
  else
    note_ = fmt::format("MFU is above 100 %, and unsure: it is of {}, the best of several measurements; {}",
                        flops_text(rate_), kWhyAboveOne);
  return step_rate / rate_;
}

void MatmulRate::check_at_end(double run_s) {
  if (!(rate_ > 0) || run_s < kWorthEnd_s) return;
  const double before = rate_;
  if (measure_again() && rate_ > kMuchBetter * before)
    note_ = fmt::format(
        "MFU was too high: it was of {}, and large products reach {} now; other work ran while they were "
        "measured first: multiply it by {:.2f}",
        flops_text(before), flops_text(rate_), before / rate_);
}

}  // namespace weft
