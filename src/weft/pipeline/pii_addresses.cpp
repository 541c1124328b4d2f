// Addresses of mail and of hosts.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <string>

#include "weft/base/ascii.h"
#include "weft/pipeline/pii_finders.h"

namespace weft::pii {
namespace {

constexpr size_t kLongestName = 64, kLongestDomain = 255;  // RFC 5321, section 4.5.3.1

bool is_name_character(char c) { return is_letter(c) || is_digit(c) || std::string_view("._%+-").find(c) != kNone; }
bool is_domain_character(char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '-'; }

// Names of files, as icon@2x.png, end like this; no domain does.
bool is_file_ending(std::string_view last) {
  constexpr std::string_view kEndings =
      " png jpg jpeg gif svg webp tif tiff bmp ico heic mp3 mp4 webm css js json html htm php xml txt pdf ";
  return kEndings.find(" " + lower_ascii(last) + " ") != kNone;
}

bool is_domain(std::string_view domain) {
  const size_t dot = domain.rfind('.');
  if (dot == kNone || dot == 0 || domain.size() - dot < 3 || domain.find("..") != kNone) return false;
  const std::string_view last = domain.substr(dot + 1);
  return std::all_of(last.begin(), last.end(), is_letter) && !is_file_ending(last);
}

// A name goes on before `at`: o'neil too, but not 'neil.
bool is_in_name(std::string_view text, size_t at) {
  const char c = before_or_nul(text, at);
  return is_name_character(c) || (c == '\'' && at > 1 && is_letter(text[at - 2]) && is_letter(at_or_nul(text, at)));
}

// @name@host of a social network, or scheme://name:word@host.
bool is_of_another_kind(std::string_view text, size_t begin) {
  constexpr size_t kFar = 100;
  const char before = before_or_nul(text, begin);
  if (before != ':' && before != '/') return before == '@';
  const std::string_view line = text.substr(begin > kFar ? begin - kFar : 0, std::min(begin, kFar));
  const size_t space = line.find_last_of(" \t\r\n\"'");
  return line.find("://", space == kNone ? 0 : space) != kNone;
}

// The number at `at` of one to three digits, at most 255 and without zeros in front; 0: none.
size_t octet_size(std::string_view text, size_t at, int& value) {
  size_t size = 0;
  value = 0;
  while (size < 3 && is_digit(at_or_nul(text, at + size))) value = 10 * value + (text[at + size++] - '0');
  return value <= 255 && (size < 2 || text[at] != '0') ? size : 0;
}

// Addresses that many hosts have at once, or none: this network, private ones (RFC 1918, 6598), loopback, link-local,
// multicast, reserved; with them masks of networks. Those of examples (RFC 5737, 3849) count as one host's, as in the
// cases of CS336.
bool is_of_one_host(const std::array<int, 4>& o) {
  const bool shared = o[0] == 0 || o[0] == 10 || o[0] == 127 || o[0] >= 224 || (o[0] == 100 && (o[1] & 0xc0) == 64) ||
                      (o[0] == 169 && o[1] == 254) || (o[0] == 172 && (o[1] & 0xf0) == 16) ||
                      (o[0] == 192 && o[1] == 168);
  return !shared;
}

constexpr std::string_view kNumbered =
    " version versions ver v release releases rel build builds firmware fw rev revision update upgrade upgraded "
    "downgraded bumped patch driver sdk section sections sec chapter chapters clause clauses article articles "
    "paragraph paragraphs para appendix annex rule table figure fig step item part oid assembly dll package ";
constexpr std::string_view kOfHosts =
    " ip ips ipv4 address addresses addr host hosts server servers dns resolver nameserver ping gateway router "
    "client remote from by peer node nodes connect ssh via ";

// 1.2.3.4 of a program or of a section rather than of a host.
bool is_version(std::string_view text, size_t begin, size_t end, const std::array<int, 4>& octets) {
  constexpr int kSmall = 20;
  const char before = before_or_nul(text, begin), after = at_or_nul(text, end), next = at_or_nul(text, end + 1);
  if (before == '/' && begin > 1 && is_word(text[begin - 2])) return true;  // Chrome/1.2.3.4
  if (is_letter(after) || after == '_' || after == '+' || (after == '-' && is_letter(next))) return true;
  if (before == '-' && begin > 1 && is_letter(text[begin - 2])) return true;  // name-1.2.3.4
  constexpr std::string_view kAfter =
      " patch patchset release version versions update beta alpha build rc firmware driver hotfix branch installer ";
  if (has_word_before(text, begin, kNumbered, 2) || has_word_after(text, end, kAfter)) return true;
  return std::all_of(octets.begin(), octets.end(), [](int o) { return o < kSmall; }) &&
         !has_word_before(text, begin, kOfHosts, 3);
}

bool is_ipv6(std::string_view text) {
  constexpr size_t kLongest = 45, kFewestGroups = 3;
  if (text.size() > kLongest || std::none_of(text.begin(), text.end(), is_digit)) return false;
  size_t groups = 0, bytes = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    groups += is_hex(text[i]) && (i == 0 || text[i - 1] == ':');
    bytes += text[i] == ':' && i % 3 == 2;
  }
  if (groups == 8 && bytes == 7 && text.size() == 23) return false;  // an EUI-64, 00:1a:2b:3c:4d:5e:6f:70
  in6_addr address;
  if (groups < kFewestGroups || inet_pton(AF_INET6, std::string(text).c_str(), &address) != 1) return false;
  const uint8_t first = address.s6_addr[0], second = address.s6_addr[1];
  return (first & 0xfe) != 0xfc && !(first == 0xfe && (second & 0x80) != 0) && first != 0xff;  // RFC 4193, 4291
}

}  // namespace

Found find_email(std::string_view text, size_t from) {
  for (size_t sign = text.find('@', from); sign != kNone; sign = text.find('@', sign + 1)) {
    size_t begin = sign, end = sign + 1;
    while (begin > from && sign - begin < kLongestName && is_in_name(text, begin)) --begin;
    while (begin < sign && !is_letter(text[begin]) && !is_digit(text[begin]) && text[begin] != '_') ++begin;
    while (end < text.size() && end - sign < kLongestDomain && is_domain_character(text[end])) ++end;
    while (end > sign && (text[end - 1] == '.' || text[end - 1] == '-')) --end;
    if (begin == sign || !is_domain(text.substr(sign + 1, end - sign - 1))) continue;
    const bool is_repository = text.substr(begin, sign - begin) == "git" && at_or_nul(text, end) == ':';
    if (!is_repository && !is_of_another_kind(text, begin)) return {begin, end};
  }
  return {};
}

Found find_ipv4(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); ++at) {
    if (!is_digit(text[at]) || is_after_ascii_word(text, at) || before_or_nul(text, at) == '.') continue;
    std::array<int, 4> octets{};
    size_t end = at, n = 0;
    while (const size_t size = octet_size(text, end, octets[n])) {
      end += size;
      if (++n == 4 || at_or_nul(text, end) != '.') break;
      ++end;
    }
    if (n != 4 || text[end - 1] == '.' || is_digit(at_or_nul(text, end))) continue;
    if (at_or_nul(text, end) == '.' && is_digit(at_or_nul(text, end + 1))) continue;  // a version of five numbers
    if (is_of_one_host(octets) && !is_version(text, at, end, octets)) return {at, end};
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
    const bool alone = !is_after_ascii_word(text, begin) && !is_before_word(text, next);
    if (alone && is_ipv6(text.substr(begin, end - begin))) return {begin, end};
    colon = text.find(':', next);
  }
  return {};
}

}  // namespace weft::pii
