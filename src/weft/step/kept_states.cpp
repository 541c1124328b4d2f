#include "weft/step/kept_states.h"

#include <algorithm>

#include "weft/models/hf_weights.h"

namespace weft {

StatesInFile states_in_file(const ParamSpec& p, const Optimizer& optimizer) {
  StatesInFile in{.names = optimizer.state_names(p), .parts = {}};
  if (in.names.empty()) return in;
  for (const HeldPart& part : held_parts(p, {})) {
    const int64_t elements = elements_of_part(p, part);
    const bool are_codes = optimizer.states(p, elements)[0].levels.has_value();
    int64_t& rows = are_codes ? in.rows_of_codes : in.rows_of_numbers;
    in.parts.push_back({part.part_rows, are_codes, rows, in.blocks});
    rows += part.part_rows.count;
    if (are_codes) in.blocks += code_blocks(p, part).num_blocks(elements);
  }
  return in;
}

int64_t bytes_to_save(const ModelSpec& model, const ParamStore& params, const Optimizer& optimizer) {
  int64_t bytes = bytes_of_hf_weights(model, params);
  const auto whole = [](const Memory&, const Tensor& x, const auto& f) { f(x, 0); };
  for_each_kept(params, Use::save, optimizer, whole,
                [&](const std::string&, int64_t, std::span<std::byte> part) { bytes += int64_t(part.size()); });
  return bytes;
}

}  // namespace weft
