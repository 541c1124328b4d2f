#include "weft/sharding/param.h"

#include <algorithm>

#include "weft/sharding/coded_weight.h"

namespace weft {
namespace {

// The rows (or columns) of a part that fall to a rank.
Run cut(const ParamSpec& spec, const Part& part, RankOf tp) {
  WEFT_CHECK(part.grain > 0 && part.size % part.grain == 0, "{}: a part of {} in grains of {}", spec.name, part.size,
             part.grain);
  const int64_t grains = part.size / part.grain;
  if (grains < tp.size)
    throw PlacementError(fmt::format("{} has {} parts of {}, which cannot be cut over {} tensor-parallel ranks",
                                     spec.name, grains, part.grain, tp.size));
  const Run run = share_of(grains, tp);
  return {run.first * part.grain, run.count * part.grain};
}

}  // namespace

std::vector<HeldPart> held_parts(const ParamSpec& spec, const CutRanks& at) {
  const Spmd held = spec.place.tp();
  const bool of_experts = spec.place.experts_are_cut(), by_columns = held == Spmd::Shard1;
  const bool parts_are_rows = !by_columns || of_experts, parts_are_cut = held == Spmd::Shard0 || !parts_are_rows;
  const Run rows{0, spec.shape[0]}, columns{0, spec.shape.elements() / std::max<int64_t>(spec.shape[0], 1)};
  const Run cut_columns = by_columns && of_experts ? cut(spec, Part{columns.count}, at.tp) : columns;
  const int64_t size = (parts_are_rows ? rows : columns).count;
  const std::vector<Part> parts = spec.parts.empty() ? std::vector{Part{size}} : spec.parts;
  WEFT_CHECK(parts_are_rows || parts.size() == 1, "{}: several parts of columns", spec.name);
  const auto num_parts = int64_t(parts.size());
  const Run mine = of_experts ? share_of(num_parts, at.ep) : Run{0, num_parts};
  if (of_experts && num_parts < at.ep.size)
    throw PlacementError(fmt::format("{} has {} experts, which cannot be cut over {} expert-parallel ranks", spec.name,
                                     num_parts, at.ep.size));
  std::vector<HeldPart> all;
  int64_t first = 0, local_row = 0;
  for (const Part& part : parts) {
    Run here = parts_are_cut && !part.everywhere ? cut(spec, part, at.tp) : Run{0, part.size};
    const auto index = int64_t(all.size());
    if (index < mine.first || index >= mine.end()) here.count = 0;
    const Run run{first + here.first, here.count};
    all.push_back({.rows = parts_are_rows ? run : rows,
                   .cols = parts_are_rows ? cut_columns : run,
                   .local_row = local_row,
                   .held = part.everywhere ? Spmd::Replicate : held,
                   .part_rows = parts_are_rows ? Run{first, part.size} : rows});
    first += part.size;
    local_row += all.back().rows.count;
  }
  WEFT_CHECK(first == size, "the parts of {} have {} of {}", spec.name, first, spec.shape.to_string());
  return all;
}

namespace {

int64_t elements_of(const ParamSpec& spec, const std::vector<HeldPart>& parts, DType stat) {
  if (spec.in_codes()) return coded_bytes(spec, parts, stat);
  int64_t n = 0;
  for (const HeldPart& part : parts) n += part.rows.count * part.cols.count;
  return n;
}

}  // namespace

Param::Param(ParamSpec spec, const CutRanks& at, DType stat) : spec_(std::move(spec)), parts_(held_parts(spec_, at)) {
  for (int64_t e = 0; e < at.ep.size; ++e)
    for (int64_t t = 0; t < at.tp.size; ++t) {
      const CutRanks there{.tp = {at.tp.size, t}, .ep = {at.ep.size, e}};
      most_elements_ = std::max(most_elements_, elements_of(spec_, held_parts(spec_, there), stat));
    }
  kept_elements_ = elements_of(spec_, parts_, stat);
  const int64_t rows = parts_.back().local_row + parts_.back().rows.count;
  shape_ = spec_.shape.rank() == 1 ? Shape(rows) : Shape(rows, parts_.back().cols.count);
}

}  // namespace weft
