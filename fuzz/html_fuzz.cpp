// Any bytes as a web page: an Error, or UTF-8 text.
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/utf8.h"
#include "weft/pipeline/html_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view html(reinterpret_cast<const char*>(data), size);
  for (const char* charset : {"", "iso-8859-1", "no-such-set"}) {
    try {
      if (weft::utf8_error(weft::html_text(html, charset)) != std::string::npos) std::abort();
    } catch (const weft::Error&) {}
  }
  return 0;
}
