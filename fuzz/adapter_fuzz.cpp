// Any bytes as an adapter's folder beside a small Llama: refused with an Error, or every target is a matrix of the
// model and every tensor can be read. The input is adapter_config.json, a newline, adapter_model.safetensors.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "temporary_folder.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/models/hf_config.h"
#include "weft/models/hf_names.h"

namespace {

namespace fs = std::filesystem;

weft::HfConfig small_llama() {
  return weft::parse_hf_config({{"model_type", "llama"},
                                {"vocab_size", 16},
                                {"hidden_size", 8},
                                {"intermediate_size", 12},
                                {"num_hidden_layers", 2},
                                {"num_attention_heads", 2},
                                {"num_key_value_heads", 1},
                                {"max_position_embeddings", 16},
                                {"rms_norm_eps", 1e-5}},
                               "fuzz");
}

void read_all(const weft::HfConfig& config, const fs::path& file) {
  const weft::SafetensorsFolder files = weft::SafetensorsFolder::of_file(file);
  for (const weft::FoundHfTensor& found : weft::match_adapter_tensors(config.spec, files).tensors) {
    const weft::HfTensor& t = found.tensor;
    if (t.rows < 1 || t.cols() < 1 || t.first_row < 0) std::abort();
    std::vector<float> values(size_t(t.rows * t.cols()));
    weft::read_hf_rows(
        found, files, {},
        {.data = values.data(), .dtype = weft::DType::f32, .rows = t.rows, .cols = t.cols(), .row_stride = t.cols()});
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TemporaryFolder made;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t line = bytes.find('\n');
  std::ofstream(made.path() / "adapter_config.json") << bytes.substr(0, line);
  std::ofstream(made.path() / "adapter_model.safetensors") << (line == bytes.npos ? "" : bytes.substr(line + 1));
  try {
    weft::HfConfig config = small_llama();
    const weft::PeftConfig adapter = weft::read_peft_config(made.path());
    weft::adapt(config, adapter, "fuzz");
    if (config.spec.adapter->targets.empty()) std::abort();
    const nlohmann::json written = weft::to_json(adapter, config.spec);
    std::ofstream(made.path() / "adapter_config.json") << written.dump();
    const weft::PeftConfig again = weft::read_peft_config(made.path());
    if (again.rank != adapter.rank || again.alpha != adapter.alpha || again.dora != adapter.dora) std::abort();
    if (config.spec.adapter->rank <= 64) read_all(config, made.path() / "adapter_model.safetensors");
  } catch (const weft::Error&) {}
  return 0;
}
