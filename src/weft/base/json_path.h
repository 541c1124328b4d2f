// Keys of keys.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// The value under a key of an object: "metadata.url" is what stands under that name, or else "url" in "metadata".
// nullptr: there is none. Json: one of nlohmann's.
template <class Json>
const Json* find_path(const Json& value, std::string_view key) {
  if (!value.is_object()) return nullptr;
  if (const auto found = value.find(std::string(key)); found != value.end()) return &*found;
  for (size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.', dot + 1)) {
    const auto outer = value.find(std::string(key.substr(0, dot)));
    if (outer == value.end()) continue;
    if (const Json* found = find_path(*outer, key.substr(dot + 1))) return found;
  }
  return nullptr;
}

}  // namespace weft
