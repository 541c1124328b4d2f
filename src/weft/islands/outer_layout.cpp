#include "weft/islands/outer_layout.h"

#include <algorithm>

#include "weft/models/transformer.h"

namespace weft {

OuterLayout::OuterLayout(const ModelSpec& model, int64_t fragments) : sizes_(size_t(fragments)) {
  weights_ = all_params(model);
  std::erase_if(weights_, [](const ParamSpec& p) { return !p.learns(); });
  int64_t all = 0, before = 0;
  for (const ParamSpec& p : weights_) all += p.shape.elements();
  for (const ParamSpec& p : weights_) {
    const int64_t n = p.shape.elements();
    const int64_t fragment = std::min(fragments - 1, fragments * (2 * before + n) / (2 * all));
    int64_t& size = sizes_[size_t(fragment)];
    WEFT_CHECK(places_.emplace(p.name, Place{.fragment = fragment, .first = size}).second, "two weights {}", p.name);
    size += n;
    before += n;
  }
  if (const auto empty = std::count(sizes_.begin(), sizes_.end(), 0); empty > 0)
    throw ConfigError(fmt::format(
        "islands.fragments = {}: {} of them would have no weight, for the model's are not so many or too unequal; the "
        "nearest that works is smaller",
        fragments, empty));
}

OuterLayout::Place OuterLayout::place_of(std::string_view weight) const {
  const auto found = places_.find(weight);
  WEFT_CHECK(found != places_.end(), "{} is not exchanged", weight);
  return found->second;
}

std::string OuterLayout::describe() const {
  std::string text;
  for (const ParamSpec& p : weights_) {
    const Place at = place_of(p.name);
    text += fmt::format("{} {} {}+{}\n", p.name, p.shape.to_string(), at.fragment, at.first);
  }
  return text;
}

}  // namespace weft
