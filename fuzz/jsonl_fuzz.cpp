// Any bytes as JSON lines: refused with an Error that names a line, or all documents are UTF-8, in order.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/utf8.h"
#include "weft/data/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  size_t last = 0;
  int64_t documents = 0;
  try {
    weft::for_each_document({text, "fuzz", "text"}, [&](std::string_view document, size_t done) {
      if (weft::utf8_error(document) != std::string_view::npos) std::abort();
      if (done <= last || done > size) std::abort();
      last = done;
      ++documents;
    });
    if (documents > 1 + std::count(text.begin(), text.end(), '\n')) std::abort();
  } catch (const weft::Error& e) {
    if (!std::string_view(e.what()).starts_with("fuzz: ")) std::abort();
  }
  return 0;
}
