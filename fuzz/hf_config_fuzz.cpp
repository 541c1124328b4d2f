// Any bytes as a config.json: refused with an Error, or a model whose sizes fit together, which is read back the same.
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/models/hf_config.h"
#include "weft/models/hf_names.h"

namespace {

void check(const weft::HfConfig& config) {
  const weft::ModelSpec& m = config.spec;
  if (m.num_heads % m.num_kv_heads != 0) std::abort();
  if (!m.layers.empty() && int64_t(m.layers.size()) != m.num_layers) std::abort();
  if (m.num_layers <= 64)
    for (const weft::HfTensor& t : weft::hf_tensors(m))
      if (t.rows < 1 || t.cols() < 1 || t.first_row < 0) std::abort();
  const nlohmann::json written = weft::hf_config_of(config, weft::DType::f32);
  const weft::HfConfig again = weft::parse_hf_config(weft::parse_json(written.dump(), "again"), "again");
  if (again.spec.width != m.width || again.spec.num_layers != m.num_layers) std::abort();
  for (int64_t l = 0; l < m.num_layers; ++l)
    if (again.spec.layer(l).window != m.layer(l).window) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(weft::parse_hf_config(weft::parse_json(text, "fuzz"), "fuzz"));
  } catch (const weft::Error&) {}
  return 0;
}
