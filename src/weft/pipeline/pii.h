// Personal data in a text, masked. Linear in the text, whatever it is.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// A kind of personal data.
struct PiiKind {
  struct Found {
    size_t begin = std::string_view::npos, end = 0;  // npos: there is none
  };
  std::string_view key;    // of pipeline.toml's [pii], and "pii.KEY" of what is counted
  std::string_view label;  // in the mask
  // The first at `from` or later.
  Found (*find)(std::string_view text, size_t from);
};

// All kinds, in the order in which they are looked for: a longer one before what may be a part of it.
//   private_keys          PRIVATE_KEY             blocks from -----BEGIN ... PRIVATE KEY----- to their END
//   api_keys              API_KEY                 of providers whose keys begin with a name (AKIA, sk-, ...);
//                                                 JSON Web Tokens
//   emails                EMAIL_ADDRESS
//   ipv6                  IP_ADDRESS              of three groups or more, with a digit in it, of one host
//   ips                   IP_ADDRESS              IPv4, of one host: not private, loopback or reserved; no version
//   ibans                 IBAN                    as long as the country has them, with a right check sum, in fours
//                                                 or in one (ISO 13616, ISO 7064 MOD 97-10)
//   cards                 CARD_NUMBER             an issuer's prefix, length and groups, and a right check digit
//                                                 (ISO/IEC 7812-1); no list of numbers
//   international_phones  PHONE_NUMBER            "+", a country's code, 8 to 15 digits in all (ITU-T E.164)
//   phones                PHONE_NUMBER            ten digits as in North America, as 283-182-3829
//   ssns                  SOCIAL_SECURITY_NUMBER  of the United States, as 123-45-6789
std::span<const PiiKind> pii_kinds();

// Puts `mask`, in which {} stands for the label, in the place of each. Returns how many there were.
int64_t mask_pii(std::string& text, const PiiKind& kind, std::string_view mask = "|||{}|||");

}  // namespace weft
