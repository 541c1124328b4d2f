// Who may look at the page: which host names a request may call the server by, and the token.
#pragma once
#include <string>
#include <string_view>

namespace weft {

// Whether an address is only reachable from this machine: 127.0.0.0/8, ::1, localhost.
bool is_loopback(std::string_view address);

// The host of "name:port" or "[::1]:port", without the port.
std::string host_of(std::string_view host_header);

// Whether a page of another name could not have sent it: a name server of somebody else may say that a name of his is
// this machine's address (DNS rebinding), but then the browser still calls the server by that name. An IP address,
// localhost, this machine's own name and the address that was asked for are good.
bool is_known_host(std::string_view host_header, std::string_view address, std::string_view name_of_machine);

// In a time that does not depend on where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// The value of a cookie in a header "a=1; b=2"; empty where there is none.
std::string cookie_in(std::string_view header, std::string_view name);

// A token: 16 to 128 letters, digits, - or _.
bool is_token(std::string_view text);
// 32 random letters and digits.
std::string make_token();
// Reads the token in a file; makes the file (mode 0600) with a new one where it is not there. Throws FileError where it
// cannot be read or written, ConfigError where it holds something else or others may read it.
std::string token_of_file(const std::string& file);

}  // namespace weft
