// Any bytes as the folder of a small Llama whose matrices may be in codes: refused with an Error, or every tensor can
// be read, whole and in part. The input is the quantization_config, a newline, model.safetensors.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include "temporary_folder.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/models/hf_config.h"
#include "weft/models/hf_names.h"

namespace {

nlohmann::json small_llama(nlohmann::json quantization) {
  return {{"model_type", "llama"},
          {"vocab_size", 2},
          {"hidden_size", 8},
          {"intermediate_size", 8},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 1},
          {"tie_word_embeddings", true},
          {"quantization_config", std::move(quantization)}};
}

void read_all(const weft::ModelSpec& model, const weft::SafetensorsFolder& files) {
  const weft::HfMatch match = weft::match_hf_tensors(model, files);
  if (match.tensors.size() != weft::hf_tensors(model).size()) std::abort();
  for (const weft::FoundHfTensor& found : match.tensors) {
    const weft::HfTensor& t = found.tensor;
    std::vector<float> values(size_t(t.rows * t.cols()));
    const auto read = [&](weft::BlockStart start, int64_t rows, int64_t cols) {
      weft::read_hf_rows(
          found, files, start,
          {.data = values.data(), .dtype = weft::DType::f32, .rows = rows, .cols = cols, .row_stride = cols});
    };
    read({}, t.rows, t.cols());
    read({t.rows - 1, t.cols() / 2}, 1, t.cols() - t.cols() / 2);
  }
}

// A file that is none of weft's makes matching fail at once: the tensors of codes are looked at by themselves too.
void find_alone(const weft::GptqFormat& format, const weft::SafetensorsFolder& files) {
  const auto codes = weft::GptqTensors::find(files, format, "m.weight", 8, 8);
  if (!codes) return;
  std::vector<float> values(64);
  codes->read(files, {}, {.data = values.data(), .dtype = weft::DType::f32, .rows = 8, .cols = 8, .row_stride = 8});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TemporaryFolder made;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t line = bytes.find('\n');
  std::ofstream(made.path() / "model.safetensors") << (line == bytes.npos ? "" : bytes.substr(line + 1));
  try {
    const nlohmann::json config = small_llama(weft::parse_json(bytes.substr(0, line), "fuzz"));
    std::ofstream(made.path() / "config.json") << config.dump();
    const weft::HfConfig model = weft::read_hf_config(made.path());
    const weft::SafetensorsFolder files = weft::SafetensorsFolder::open(made.path());
    if (const auto format = weft::gptq_format_in(made.path())) find_alone(*format, files);
    read_all(model.spec, files);
  } catch (const weft::Error&) {}
  return 0;
}
