// Normal forms of URLs: those of the same page become equal.
#pragma once
#include <string>
#include <string_view>

namespace weft {

// A URL without what names no other page: http for https, host in lower case without a default port, a last dot or
// "www.", letters and digits that are percent-encoded as themselves (RFC 3986, section 6.2.2), no fragment, no query
// parameters that only tell where a visitor came from (utm_..., gclid, fbclid, msclkid), the other ones in order, no
// slash at the end. What is no http(s) URL is left as it is but for its fragment.
std::string normal_url(std::string_view url);

// Whether this is an address at all, scheme://host (RFC 3986, section 3), and no "N/A" or "unknown" in its place.
bool is_url(std::string_view url);

}  // namespace weft
