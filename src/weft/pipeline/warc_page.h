// The page in a record of a WARC file (ISO 28500).
#pragma once
#include <string>
#include <string_view>

namespace weft {

// Size of the first line and the headers, with the empty line behind them; 0 if that is missing.
size_t header_size(std::string_view message);
// The value under a name in lower case, without white space around it; empty where there is none.
std::string header_value(std::string_view head, std::string_view name);

struct WarcPage {
  std::string url, date;  // as the record says; may be empty
  std::string type;       // Content-Type, in lower case: HTML or plain text
  std::string bytes;      // out of its chunks and decompressed, in the character set that it came in
};

// Returns why the record is no page; empty: it is one. Throws Error where the response is broken.
std::string read_warc_page(std::string_view record, WarcPage& page);

}  // namespace weft
