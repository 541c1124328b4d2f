// Personal data in a text, masked. Linear in the text, whatever it is.
#pragma once
#include <cstdint>
#include <string>

namespace weft {

// Each returns how many it masked.
int64_t mask_emails(std::string& text);  // |||EMAIL_ADDRESS|||
int64_t mask_ips(std::string& text);     // IPv4: |||IP_ADDRESS|||
int64_t mask_phones(std::string& text);  // North American numbers, as 283-182-3829: |||PHONE_NUMBER|||

}  // namespace weft
