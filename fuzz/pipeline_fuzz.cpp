// Any bytes as a pipeline.toml: a ConfigError that names the file, or a pipeline whose values can be printed.
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/pipeline/pipeline_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const weft::PipelineConfig config = weft::parse_pipeline(text, "fuzz");
    if (config.sources.empty() || config.run.dir.empty()) std::abort();
    weft::parameters_of(config, {"source", "read", "dedup"});
  } catch (const weft::ConfigError&) {}
  return 0;
}
