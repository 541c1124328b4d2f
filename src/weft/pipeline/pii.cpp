#include "weft/pipeline/pii.h"

#include "weft/pipeline/pii_finders.h"

namespace weft {
namespace {

constexpr PiiKind kKinds[] = {
    {"private_keys", "PRIVATE_KEY", pii::find_private_key},
    {"api_keys", "API_KEY", pii::find_api_key},
    {"emails", "EMAIL_ADDRESS", pii::find_email},
    {"ipv6", "IP_ADDRESS", pii::find_ipv6},
    {"ips", "IP_ADDRESS", pii::find_ipv4},
    {"ibans", "IBAN", pii::find_iban},
    {"cards", "CARD_NUMBER", pii::find_card},
    {"international_phones", "PHONE_NUMBER", pii::find_international_phone},
    {"phones", "PHONE_NUMBER", pii::find_phone},
    {"ssns", "SOCIAL_SECURITY_NUMBER", pii::find_ssn},
};

}  // namespace

std::span<const PiiKind> pii_kinds() { return kKinds; }

int64_t mask_pii(std::string& text, const PiiKind& kind, std::string_view mask) {
  const std::string_view old = text;
  std::string with(mask), masked;
  if (const size_t place = with.find("{}"); place != std::string::npos) with.replace(place, 2, kind.label);
  int64_t n = 0;
  size_t at = 0;
  for (auto f = kind.find(old, at); f.begin != pii::kNone; f = kind.find(old, at)) {
    (masked += old.substr(at, f.begin - at)) += with;
    at = f.end;
    ++n;
  }
  if (n > 0) text = masked + std::string(old.substr(at));
  return n;
}

}  // namespace weft
