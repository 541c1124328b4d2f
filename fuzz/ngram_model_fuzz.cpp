// Any bytes as a model of `weft data train-ngram`: refused with an Error that names its file, or a model that gives any
// text a perplexity.
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "memory_file.h"
#include "weft/pipeline/ngram_model.h"

// The first byte says how many of what follows are the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view text = all.substr(0, data[0]);
  const MemoryFile file(all.substr(text.size()));
  try {
    const double perplexity = weft::NgramModel::read(file.path()).perplexity(text);
    if (!std::isfinite(perplexity) || perplexity < 0) std::abort();
  } catch (const weft::Error& e) {
    if (!std::string_view(e.what()).starts_with(file.path())) std::abort();
  }
  return 0;
}
