#include "weft/train/planted_numbers.h"

#include <cstring>
#include <limits>

#include "weft/base/fault_point.h"

namespace weft {
namespace {

Tensor named(const ParamStore::Stored& block, std::string_view point) {
  if (point == "weights") return block.master;
  if (point == "moment") return block.states.empty() ? Tensor() : block.states[0];
  return block.grad;
}

Tensor first_kept(const ParamStore& params, std::string_view point) {
  for (const Param* p : params.params(ParamStore::Copies::with)) {
    if (!p->learns()) continue;
    if (point == "values") return p->value;
    for (const ParamStore::Stored& block : params.stored(*p))
      if (const Tensor t = named(block, point); t.data != nullptr && t.elements() > 0) return t;
  }
  return {};
}

template <class Change>
void change_first(const Memory& memory, const Tensor& t, const Change& change) {
  alignas(8) std::byte number[8] = {};
  memory.copy(number, t.data, size_t(size_of(t.dtype)));
  change(number);
  memory.copy(t.data, number, size_t(size_of(t.dtype)));
}

}  // namespace

void plant_number(const ParamStore& params, std::string_view point, int64_t step) {
  plant_number(params, Tensor(), point, step);
}

void plant_number(const ParamStore& params, const Tensor& of, std::string_view point, int64_t step) {
  const int rank = params.mesh().world->rank();
  const bool nan = is_planted("nan", point, rank, step), flip = is_planted("flip", point, rank, step);
  if (!nan && !flip) return;
  const Tensor t = of ? of : first_kept(params, point);
  WEFT_CHECK(t, "a fault is planted at {}, of which rank {} keeps nothing", point, rank);
  change_first(params.memory(), t, [&](std::byte* number) {
    const double d = std::numeric_limits<double>::quiet_NaN();
    const auto f = float(d);
    if (flip) number[0] ^= std::byte{4};  // little-endian: among the last bits
    if (nan && t.dtype == DType::f64) std::memcpy(number, &d, sizeof d);
    if (nan && t.dtype == DType::f32) std::memcpy(number, &f, sizeof f);
  });
}

}  // namespace weft
