#include "weft/pipeline/pii.h"

#include <algorithm>
#include <string_view>

namespace weft {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr size_t kLongestName = 64, kLongestDomain = 255;  // RFC 5321, section 4.5.3.1

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_character(char c) { return is_letter(c) || is_digit(c) || std::string_view("._%+-").find(c) != kNone; }
bool is_domain_character(char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '-'; }

struct Found {
  size_t begin = kNone, end = 0;
};

// Replaces what find(text, from) finds, one after the other.
template <class Find>
int64_t mask(std::string& text, std::string_view with, const Find& find) {
  const std::string_view old = text;
  std::string masked;
  int64_t n = 0;
  size_t at = 0;
  for (Found f = find(old, at); f.begin != kNone; f = find(old, at)) {
    (masked += old.substr(at, f.begin - at)) += with;
    at = f.end;
    ++n;
  }
  if (n > 0) text = masked + std::string(old.substr(at));
  return n;
}

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

}  // namespace

int64_t mask_emails(std::string& text) { return mask(text, "|||EMAIL_ADDRESS|||", find_email); }
int64_t mask_ips(std::string& text) { return mask(text, "|||IP_ADDRESS|||", find_ip); }
int64_t mask_phones(std::string& text) { return mask(text, "|||PHONE_NUMBER|||", find_phone); }

}  // namespace weft
