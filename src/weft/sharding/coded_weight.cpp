#include "weft/sharding/coded_weight.h"

#include "weft/sharding/state_format.h"

namespace weft {
namespace {

Run behind(int64_t end, int64_t bytes) {
  return {(end + kCodedAlignment - 1) / kCodedAlignment * kCodedAlignment, bytes};
}

}  // namespace

Tensor CodedPart::scales_in(const Tensor& bytes, DType stat) const {
  const Tensor run = bytes.slice_rows(scales.first, scales.count);
  return Tensor(run.data, stat, {scales.count / size_of(stat)}, run.place);
}

std::vector<CodedPart> coded_parts(const ParamSpec& weight, const std::vector<HeldPart>& parts, DType stat) {
  std::vector<CodedPart> all;
  int64_t end = 0;
  for (const HeldPart& part : parts) {
    CodedPart& coded = all.emplace_back(CodedPart{.at = {.as = weight.codes,
                                                         .rows = part.rows.count,
                                                         .cols = part.cols.count,
                                                         .origin = code_blocks(weight, part).origin,
                                                         .stride = width_of(weight)},
                                                  .codes = {},
                                                  .maxima = {},
                                                  .scales = {}});
    coded.codes = behind(end, coded.at.num_codes());
    coded.maxima = behind(coded.codes.end(), coded.at.num_maxima());
    coded.scales = behind(coded.maxima.end(), coded.at.num_scales() * size_of(stat));
    end = coded.scales.end();
  }
  return all;
}

int64_t coded_bytes(const ParamSpec& weight, const std::vector<HeldPart>& parts, DType stat) {
  const std::vector<CodedPart> all = coded_parts(weight, parts, stat);
  return all.empty() ? 0 : behind(all.back().scales.end(), 0).first;
}

}  // namespace weft
