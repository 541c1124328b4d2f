// Any bytes as a web page: an Error, or UTF-8 text.
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/utf8.h"
#include "weft/pipeline/charset.h"
#include "weft/pipeline/html_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view html(reinterpret_cast<const char*>(data), size);
  for (const char* charset : {"", "iso-8859-1", "no-such-set", "gb2312", "shift_jis", "euc-jp", "iso-2022-jp", "big5",
                              "euc-kr", "utf-16", "windows-1255"}) {
    try {
      if (weft::utf8_error(weft::html_text(weft::decode_page(html, charset).text)) != std::string::npos) std::abort();
    } catch (const weft::Error&) {}
  }
  return 0;
}
