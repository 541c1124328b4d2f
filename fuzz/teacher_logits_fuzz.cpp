// Any bytes as a file of a teacher's logits: refused with an Error that names the file, or each sample is refused so or
// has ids in order within the vocabulary. The input is the header, which is filled up to its length, a newline, the
// rest.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "memory_file.h"
#include "weft/base/error.h"
#include "weft/data/teacher_logits.h"

namespace {

void check(const weft::TopRows& rows, const weft::TeacherLogitsSpec& spec) {
  for (size_t row = 0; row < rows.lse.size(); ++row)
    for (int64_t i = 0; i < spec.top; ++i) {
      const int32_t* id = &rows.ids[row * size_t(spec.top) + size_t(i)];
      if (*id < 0 || *id >= spec.vocab_size || (i > 0 && *id <= id[-1])) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t line = bytes.find('\n');
  std::string file(bytes.substr(0, line));
  file.resize(size_t(weft::TeacherLogitsSpec::kHeaderBytes), ' ');
  if (line != bytes.npos) file += bytes.substr(line + 1);
  const MemoryFile memory(file);
  try {
    const weft::TeacherLogits logits(memory.path());
    const weft::TeacherLogitsSpec& spec = logits.spec();
    const auto rows = size_t(spec.seq_length), numbers = rows * size_t(spec.top);
    std::vector<int32_t> ids(numbers);
    std::vector<float> values(numbers), lse(rows);
    for (int64_t sample = 0; sample < std::min<int64_t>(spec.num_samples, 4); ++sample) {
      const weft::TopRows to{ids, values, lse};
      logits.read(sample, to);
      check(to, spec);
    }
  } catch (const weft::Error& e) {
    if (!std::string_view(e.what()).starts_with(memory.path())) std::abort();
  }
  return 0;
}
