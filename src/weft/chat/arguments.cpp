#include "weft/chat/arguments.h"

#include <algorithm>

#include "weft/base/ascii.h"

namespace weft::chat {
Given::Given(std::string_view what, std::string_view parameters, const Arguments& arguments)
    : what_(what), all_(&arguments) {
  if (parameters == "*") {
    for (size_t i = 0; i < std::min(arguments.positional.size(), at_.size()); ++i) at_[i] = &arguments.positional[i];
    return;
  }
  const auto names = words_of(parameters);
  if (arguments.positional.size() > names.size())
    fail(fmt::format("{} takes at most {} arguments, got {}", what, names.size(), arguments.positional.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i) at_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) fail(fmt::format("{} has no argument \"{}\"", what, name));
    const auto place = size_t(at - names.begin());
    if (at_[place] != nullptr) fail(fmt::format("{} was given \"{}\" twice", what, name));
    at_[place] = &value;
  }
}

const Value& Given::operator()(size_t i) const {
  if (at_[i] == nullptr) fail(fmt::format("{} needs more than {} arguments", what_, i));
  return *at_[i];
}

}  // namespace weft::chat
