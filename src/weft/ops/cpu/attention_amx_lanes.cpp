#include "weft/ops/cpu/attention_amx.h"
#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/attention_amx_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/attention_dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

void dropout_factors(const DropoutSpec& spec, const AttentionHeads& h, const QueryBlock& block, const Strip& strip,
                     float* to) {
  BlockDropout(spec, h, block).factors(strip, to);
}
void tanh_of(float* x, int64_t n, float factor) {
  const Lanes d;
  for (int64_t i = 0; i < n; i += kLanes)
    hn::StoreU(tanh(d, hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor))), d, x + i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(dropout_factors);
HWY_EXPORT(tanh_of);
void dropout_factors(const DropoutSpec& spec, const AttentionHeads& h, const QueryBlock& block, const Strip& strip,
                     float* to) {
  HWY_DYNAMIC_DISPATCH(dropout_factors)(spec, h, block, strip, to);
}
void tanh_of(float* x, int64_t n, float factor) { HWY_DYNAMIC_DISPATCH(tanh_of)(x, n, factor); }
}  // namespace weft::cpu
#endif
