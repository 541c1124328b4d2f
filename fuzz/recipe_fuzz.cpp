// Any bytes as a recipe: refused with an Error, or a recipe that is printed and read back as the same.
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/recipe/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const weft::Recipe recipe = weft::parse_recipe(text, "fuzz", {"model.path=m", "data.train=a.txt"});
    if (!(weft::parse_recipe(weft::to_toml(recipe), "again", {}) == recipe)) std::abort();
  } catch (const weft::Error&) {}
  try {
    weft::parse_recipe("", "fuzz", {text});
  } catch (const weft::Error&) {}
  return 0;
}
