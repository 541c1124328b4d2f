// Any bytes as a GGUF file: refused with an Error that names its file, or every number in it can be read, its tokenizer
// gives ids within its vocabulary, and its configuration is one or refused.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "memory_file.h"
#include "weft/base/error.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/gguf_config.h"
#include "weft/models/weight_source.h"
#include "weft/tokenize/tokenizer.h"

namespace {

void read_all(const weft::GgufFile& file) {
  for (const weft::GgufTensor& t : file.tensors()) {
    if (weft::find_gguf_type(t.type) == nullptr) continue;
    std::vector<float> row(size_t(t.cols()));
    for (int64_t i = 0; i < t.rows(); ++i) file.read_row(t, i, 0, row);
    file.read_row(t, t.rows() - 1, t.cols() - 1, {row.data(), 1});
  }
}

// Calls `f`; what it throws must begin with the file's name.
template <class F>
void refused_or(std::string_view path, F f) {
  try {
    f();
  } catch (const weft::Error& e) {
    if (!std::string_view(e.what()).starts_with(path)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile memory({reinterpret_cast<const char*>(data), size});
  const std::string path = memory.path();
  refused_or(path, [&] { read_all(weft::GgufFile(path)); });
  if (!weft::is_gguf(path)) return 0;
  refused_or(path, [&] {
    const auto tokenizer = weft::read_tokenizer(path);
    std::vector<int32_t> ids;
    tokenizer->encode("Some text, <s> 123", ids, weft::SpecialText::kParsed);
    for (const int32_t id : ids)
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
  });
  refused_or(path, [&] {
    const weft::HfConfig config = weft::read_gguf_config(path);
    if (config.spec.num_layers < 8) weft::open_weights(path, config.spec);
  });
  return 0;
}
