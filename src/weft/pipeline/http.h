// Headers and bodies as WARC records hold them.
#pragma once
#include <string>
#include <string_view>

namespace weft {

// Size of the first line and the headers, with the empty line behind them; 0 if that is missing.
size_t header_size(std::string_view message);
// The value under a name in lower case, without white space around it; empty where there is none.
std::string header_value(std::string_view head, std::string_view name);

// The body of an HTTP response, out of its chunks and decompressed (gzip), at most `max_bytes`. Throws Error that says
// what is broken or not known.
std::string http_body(std::string_view head, std::string_view body, size_t max_bytes);

}  // namespace weft
