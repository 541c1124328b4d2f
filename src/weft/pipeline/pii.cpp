#include "weft/pipeline/pii.h"

#include <arpa/inet.h>

#include <algorithm>
#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr size_t kLongestName = 64, kLongestDomain = 255;  // RFC 5321, section 4.5.3.1

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
// Of what a number stands beside, if it is a part of something else: ASCII, or a byte of another letter.
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_' || (uint8_t(c) & 0x80) != 0; }
bool is_name_character(char c) { return is_letter(c) || is_digit(c) || std::string_view("._%+-").find(c) != kNone; }
bool is_domain_character(char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '-'; }

using Found = PiiKind::Found;

Found find_email(std::string_view text, size_t from) {
  for (size_t sign = text.find('@', from); sign != kNone; sign = text.find('@', sign + 1)) {
    size_t begin = sign, end = sign + 1;
    while (begin > from && sign - begin < kLongestName && is_name_character(text[begin - 1])) --begin;
    while (end < text.size() && end - sign < kLongestDomain && is_domain_character(text[end])) ++end;
    while (end > sign && (text[end - 1] == '.' || text[end - 1] == '-')) --end;
    const std::string_view domain = text.substr(sign + 1, end - sign - 1);
    const size_t dot = domain.rfind('.');
    if (begin == sign || dot == kNone || dot == 0 || domain.size() - dot < 3) continue;
    if (std::all_of(domain.begin() + std::ptrdiff_t(dot) + 1, domain.end(), is_letter)) return {begin, end};
  }
  return {};
}

bool is_ipv6(std::string_view text) {
  constexpr size_t kLongest = 45, kFewestGroups = 3;
  if (text.size() > kLongest || std::none_of(text.begin(), text.end(), is_digit)) return false;
  size_t groups = 0;
  for (size_t i = 0; i < text.size(); ++i) groups += is_hex(text[i]) && (i == 0 || text[i - 1] == ':');
  in6_addr address;
  return groups >= kFewestGroups && inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

// ISO 7064 MOD 97-10: the first four at the end, letters as 10 to 35.
bool is_iban(std::string_view symbols) {
  int rest = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const char c = symbols[(i + 4) % symbols.size()];
    rest = is_digit(c) ? (10 * rest + (c - '0')) % 97 : (100 * rest + (c - 'A' + 10)) % 97;
  }
  return rest == 1;
}

// ISO/IEC 7812-1, annex B: every second digit from the right doubled.
bool has_check_digit(std::string_view digits) {
  int sum = 0;
  for (size_t i = 0; i < digits.size(); ++i) {
    const int digit = digits[digits.size() - 1 - i] - '0', twice = 2 * digit;
    sum += i % 2 == 0 ? digit : twice > 9 ? twice - 9 : twice;
  }
  return sum % 10 == 0;
}

// The number at `at` of one to three digits, at most 255; 0: none.
size_t octet_size(std::string_view text, size_t at) {
  size_t size = 0;
  int value = 0;
  while (size < 3 && at + size < text.size() && is_digit(text[at + size]))
    value = 10 * value + (text[at + size++] - '0');
  return value <= 255 ? size : 0;
}

Found find_ip(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); ++at) {
    if (!is_digit(text[at]) || (at > 0 && (is_digit(text[at - 1]) || text[at - 1] == '.'))) continue;
    size_t end = at, octets = 0;
    while (const size_t size = octet_size(text, end)) {
      end += size;
      if (++octets == 4 || end >= text.size() || text[end] != '.') break;
      ++end;
    }
    if (octets != 4 || text[end - 1] == '.' || (end < text.size() && is_digit(text[end]))) continue;
    if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) continue;  // a version of five numbers
    return {at, end};
  }
  return {};
}

// Takes `n` digits at `at`; false: there are not so many.
bool take_digits(std::string_view text, size_t& at, size_t n) {
  for (size_t i = 0; i < n; ++i, ++at)
    if (at >= text.size() || !is_digit(text[at])) return false;
  return true;
}
void take_one_of(std::string_view text, size_t& at, std::string_view what) {
  if (at < text.size() && what.find(text[at]) != kNone) ++at;
}

// [+1] (283) 182 3829, with -, . or spaces between.
size_t phone_end(std::string_view text, size_t at) {
  if (text.substr(at).starts_with("+1")) {
    at += 2;
    take_one_of(text, at, " -.");
  }
  const bool bracket = at < text.size() && text[at] == '(';
  if (bracket) ++at;
  if (!take_digits(text, at, 3)) return kNone;
  if (bracket && (at >= text.size() || text[at++] != ')')) return kNone;
  take_one_of(text, at, " -.");
  if (bracket) take_one_of(text, at, " -.");
  if (!take_digits(text, at, 3)) return kNone;
  take_one_of(text, at, " -.");
  if (!take_digits(text, at, 4)) return kNone;
  return at < text.size() && is_digit(text[at]) ? kNone : at;
}

Found find_phone(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); ++at) {
    const char c = text[at], before = at > 0 ? text[at - 1] : ' ';
    if ((!is_digit(c) && c != '(' && c != '+') || is_digit(before) || is_letter(before)) continue;
    const size_t end = phone_end(text, at);
    if (end != kNone) return {at, end};
  }
  return {};
}

// Addresses of an interface or host; "::1" and the like are nobody's.
Found find_ipv6(std::string_view text, size_t from) {
  const auto is_part = [](char c) { return is_hex(c) || c == ':' || c == '.'; };
  for (size_t colon = text.find(':', from); colon != kNone;) {
    size_t begin = colon, end = colon;
    while (begin > from && is_part(text[begin - 1])) --begin;
    while (end < text.size() && is_part(text[end])) ++end;
    const size_t next = end;
    while (end - begin > 1 && (text[end - 1] == '.' || (text[end - 1] == ':' && text[end - 2] != ':'))) --end;
    const bool alone = (begin == 0 || !is_word(text[begin - 1])) && (next == text.size() || !is_word(text[next]));
    if (alone && is_ipv6(text.substr(begin, end - begin))) return {begin, end};
    colon = text.find(':', next);
  }
  return {};
}

// Digits or letters at `at` in groups, whose ends a check may accept: up to `most` of them, one of `separators`, always
// the same, between two groups.
struct Groups {
  std::string symbols;       // without separators
  std::vector<size_t> ends;  // in the text, of each group
  std::vector<size_t> counts;
};
template <class IsSymbol>
Groups take_groups(std::string_view text, size_t at, size_t most, std::string_view separators, const IsSymbol& is) {
  Groups g;
  char separator = 0;
  while (at < text.size()) {
    while (at < text.size() && is(text[at]) && g.symbols.size() <= most) g.symbols += text[at++];
    if (g.symbols.size() > most) break;
    g.ends.push_back(at);
    g.counts.push_back(g.symbols.size());
    const bool goes_on = at + 1 < text.size() && separators.find(text[at]) != kNone && is(text[at + 1]) &&
                         (separator == 0 || text[at] == separator);
    if (!goes_on) break;
    separator = text[at++];
  }
  return g;
}

bool is_after_word(std::string_view text, size_t at) { return at > 0 && is_word(text[at - 1]); }

Found find_iban(std::string_view text, size_t from) {
  constexpr size_t kShortest = 15, kLongest = 34;
  for (size_t at = from; at + kShortest <= text.size(); ++at) {
    if (!is_upper(text[at]) || !is_upper(text[at + 1]) || !is_digit(text[at + 2]) || !is_digit(text[at + 3])) continue;
    if (is_after_word(text, at)) continue;
    const Groups g = take_groups(text, at, kLongest, " ", [](char c) { return is_upper(c) || is_digit(c); });
    for (size_t i = 0; i < g.ends.size(); ++i) {
      const bool in_fours = i == 0 || g.counts[i - 1] == 4 * i;
      if (!in_fours || (i > 0 && g.counts[i] - g.counts[i - 1] > 4)) break;
      if (g.ends[i] < text.size() && is_word(text[g.ends[i]])) break;
      if (g.counts[i] >= kShortest && is_iban(std::string_view(g.symbols).substr(0, g.counts[i])))
        return {at, g.ends[i]};
    }
  }
  return {};
}

Found find_card(std::string_view text, size_t from) {
  constexpr size_t kShortest = 13, kLongest = 19, kSmallestGroup = 3;
  for (size_t at = from; at + kShortest <= text.size(); ++at) {
    if (text[at] < '2' || text[at] > '6' || is_after_word(text, at)) continue;
    if (at > 1 && (text[at - 1] == '.' || text[at - 1] == '-') && is_digit(text[at - 2])) continue;
    const Groups g = take_groups(text, at, kLongest, " -", is_digit);
    for (size_t i = 0; i < g.ends.size(); ++i) {
      if (g.counts[i] - (i == 0 ? 0 : g.counts[i - 1]) < kSmallestGroup) break;
      if (g.ends[i] < text.size() && is_word(text[g.ends[i]])) break;
      if (g.counts[i] >= kShortest && has_check_digit(std::string_view(g.symbols).substr(0, g.counts[i])))
        return {at, g.ends[i]};
    }
  }
  return {};
}

// The digits of a country's code at the beginning of a number of so many digits in all; 0: it is none.      ITU-T E.164
size_t country_code_size(std::string_view digits) {
  if (digits[0] == '1') return digits.size() == 11 ? 1 : 0;
  if (digits[0] == '7') return digits.size() == 11 ? 1 : 0;
  constexpr std::string_view kTwo =
      "20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81 82 84 86 "
      "90 91 92 93 94 95 98";
  constexpr std::string_view kThree = "21 22 23 24 25 26 29 35 37 38 42 50 59 67 68 69 80 85 87 88 96 97 99";
  if (kTwo.find(digits.substr(0, 2)) != kNone) return 2;
  return kThree.find(digits.substr(0, 2)) != kNone ? 3 : 0;
}

Found find_international_phone(std::string_view text, size_t from) {
  constexpr size_t kFewest = 8, kMost = 15;
  for (size_t plus = text.find('+', from); plus != kNone; plus = text.find('+', plus + 1)) {
    if (is_after_word(text, plus) || plus + 1 >= text.size() || !is_digit(text[plus + 1])) continue;
    std::string digits;
    size_t end = kNone, at = plus + 1;
    while (at < text.size() && digits.size() <= kMost) {
      while (at < text.size() && is_digit(text[at]) && digits.size() <= kMost) digits += text[at++];
      const bool whole = at == text.size() || !is_word(text[at]);
      if (digits.size() <= kMost && digits.size() >= kFewest && whole && country_code_size(digits) > 0) end = at;
      const size_t before = at;
      take_one_of(text, at, " -./");
      take_one_of(text, at, "(");
      if (at < text.size() && text[at] == ')' && at == before) ++at, take_one_of(text, at, " -");
      if (at == before || at >= text.size() || !is_digit(text[at])) break;
    }
    if (end != kNone) return {plus, end};
  }
  return {};
}

constexpr PiiKind kKinds[] = {
    {"emails", "EMAIL_ADDRESS", find_email}, {"ipv6", "IP_ADDRESS", find_ipv6},
    {"ips", "IP_ADDRESS", find_ip},          {"ibans", "IBAN", find_iban},
    {"cards", "CARD_NUMBER", find_card},     {"international_phones", "PHONE_NUMBER", find_international_phone},
    {"phones", "PHONE_NUMBER", find_phone},
};

}  // namespace

std::span<const PiiKind> pii_kinds() { return kKinds; }

const PiiKind& pii_kind(std::string_view key) {
  const auto* found =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const PiiKind& k) { return k.key == key; });
  WEFT_CHECK(found != std::end(kKinds), "no kind of personal data: {}", key);
  return *found;
}

int64_t mask_pii(std::string& text, const PiiKind& kind, std::string_view mask) {
  const std::string_view old = text;
  std::string with(mask), masked;
  if (const size_t place = with.find("{}"); place != std::string::npos) with.replace(place, 2, kind.label);
  int64_t n = 0;
  size_t at = 0;
  for (Found f = kind.find(old, at); f.begin != kNone; f = kind.find(old, at)) {
    (masked += old.substr(at, f.begin - at)) += with;
    at = f.end;
    ++n;
  }
  if (n > 0) text = masked + std::string(old.substr(at));
  return n;
}

}  // namespace weft
