// Numbers of accounts, cards, people and telephones.
#include <string>
#include <vector>

#include "weft/base/ascii.h"
#include "weft/pipeline/pii_finders.h"

namespace weft::pii {
namespace {

// ISO 7064 MOD 97-10: the first four at the end, letters as 10 to 35.
bool has_iban_check(std::string_view symbols) {
  int rest = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const char c = symbols[(i + 4) % symbols.size()];
    rest = is_digit(c) ? (10 * rest + (c - '0')) % 97 : (100 * rest + (c - 'A' + 10)) % 97;
  }
  return rest == 1;
}

// The length of an account's number in a country; 0: it has none.          SWIFT, IBAN registry
size_t iban_size(std::string_view country) {
  constexpr std::string_view kSizes =
      "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
      "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
      "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 "
      "PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 "
      "YE30 ";
  const size_t at = kSizes.find(country);
  return at == kNone ? 0 : size_t(10 * (kSizes[at + 2] - '0') + (kSizes[at + 3] - '0'));
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

// Digits or letters in groups, between two of which stands one of `separators`, always the same: up to `most` of them.
struct Groups {
  std::string symbols;  // without separators
  std::vector<size_t> sizes;
  char separator = 0;
  size_t end = 0;  // in the text
};
template <class IsSymbol>
Groups take_groups(std::string_view text, size_t at, size_t most, std::string_view separators, const IsSymbol& is) {
  Groups g;
  while (at < text.size() && g.symbols.size() <= most) {
    const size_t begin = at;
    while (at < text.size() && is(text[at]) && g.symbols.size() <= most) g.symbols += text[at++];
    g.sizes.push_back(at - begin);
    g.end = at;
    const char c = at_or_nul(text, at);
    const bool goes_on = c != '\0' && separators.find(c) != kNone && is(at_or_nul(text, at + 1)) &&
                         (g.separator == 0 || c == g.separator);
    if (!goes_on) break;
    g.separator = c;
    ++at;
  }
  return g;
}

// How cards of an issuer are numbered: prefixes from `first` to `last`, the digits in all, and how they are grouped.
struct Issuer {
  int first, last;
  size_t digits;
  std::string_view groups;
};
constexpr Issuer kIssuers[] = {
    {4, 4, 16, "4444"},        // Visa
    {4, 4, 19, "44443"},       //
    {51, 55, 16, "4444"},      // Mastercard
    {2221, 2720, 16, "4444"},  //
    {34, 34, 15, "465"},       // American Express
    {37, 37, 15, "465"},       //
    {6011, 6011, 16, "4444"},  // Discover
    {644, 659, 16, "4444"},    //
    {3528, 3589, 16, "4444"},  // JCB
    {300, 305, 14, "464"},     // Diners Club
    {309, 309, 14, "464"},     //
    {36, 36, 14, "464"},       //
    {38, 39, 14, "464"},       //
    {62, 62, 16, "4444"},      // UnionPay
    {62, 62, 19, "44443"},     //
    {62, 62, 19, "6d"},        // 6 and 13
    {2200, 2204, 16, "4444"},  // Mir
    {5018, 5018, 16, "4444"},  // Maestro
    {5020, 5020, 16, "4444"},  //
    {5038, 5038, 16, "4444"},  //
    {6304, 6304, 16, "4444"},  //
    {6759, 6759, 16, "4444"},  //
    {6761, 6763, 16, "4444"},  //
};

// The digits of the card's number at the beginning of `g`, in their groups; 0: there is none.
size_t card_groups(const Groups& g) {
  for (const Issuer& issuer : kIssuers) {
    const size_t prefix = std::to_string(issuer.first).size();
    if (g.symbols.size() < issuer.digits || g.symbols.size() < prefix) continue;
    const int begin = std::stoi(g.symbols.substr(0, prefix));
    if (begin < issuer.first || begin > issuer.last) continue;
    const size_t n = g.separator == 0 ? 1 : issuer.groups.size();
    if (g.sizes.size() < n) continue;
    bool fits = g.separator != 0 || g.sizes[0] == issuer.digits;
    for (size_t i = 0; g.separator != 0 && i < n; ++i)
      fits = fits && g.sizes[i] == size_t(issuer.groups[i] == 'd' ? 13 : issuer.groups[i] - '0');
    if (fits && has_check_digit(std::string_view(g.symbols).substr(0, issuer.digits))) return n;
  }
  return 0;
}

constexpr std::string_view kOfOthers =
    " id ids uid gid size bug issue pr commit order orders invoice ticket tickets tracking track parcel "
    "shipment serial imei isbn issn ean upc gtin sku ref reference case timestamp ts time epoch unix hash job "
    "build pid oclc lccn pmid doi arxiv asin item product part model population ";

constexpr std::string_view kUnits =
    " byte bytes bit bits kb mb ms ns us s seconds px pixels hz rows records entries users people persons views points "
    "km m meters metres miles years usd eur gbp dollars euros pounds yen won rupees items hits times tokens atoms "
    "cells ";

bool take_digits(std::string_view text, size_t& at, size_t n) {
  for (size_t i = 0; i < n; ++i, ++at)
    if (!is_digit(at_or_nul(text, at))) return false;
  return true;
}
char take_one_of(std::string_view text, size_t& at, std::string_view what) {
  const char c = at_or_nul(text, at);
  if (c == '\0' || what.find(c) == kNone) return 0;
  ++at;
  return c;
}

// [+1] (283) 182 3829, with -, . or spaces between, both times the same, or 283 782-3829 or 283/782-3829; or all ten
// digits in one.
struct Phone {
  size_t end = kNone;
  bool is_bare = false;
  std::string_view digits{};  // of a bare one
};
Phone phone_at(std::string_view text, size_t at) {
  const size_t begin = at;
  const bool country = text.substr(at).starts_with("+1") || (at_or_nul(text, at) == '1');
  if (country) {
    at += text[at] == '+' ? 2 : 1;
    const char between = take_one_of(text, at, " -.");
    if (between == 0 && text[begin] != '+' && at_or_nul(text, at) != '(') return {};
    if (between == '.' && is_digit(at_or_nul(text, at + 3))) return {};  // 1.4142135623
  }
  const bool bracket = take_one_of(text, at, "(") != 0;
  const size_t first = at;
  if (!take_digits(text, at, 3) || text[first] < '2') return {};
  if (bracket && take_one_of(text, at, ")") == 0) return {};
  const char between = take_one_of(text, at, bracket ? " -." : " -./");
  if (bracket) take_one_of(text, at, " -.");
  const size_t exchange = at;
  if (!take_digits(text, at, 3)) return {};
  const char later = take_one_of(text, at, " -.");
  if (!take_digits(text, at, 4)) return {};
  const bool mixed = (between == ' ' || between == '/') && later == '-' && text[exchange] >= '2';
  if (!bracket && between != later && !mixed) return {};
  if (between == '/' && !mixed) return {};
  if (is_digit(at_or_nul(text, at))) return {};
  const char next = at_or_nul(text, at);
  if ((next == '-' || next == '.') && is_digit(at_or_nul(text, at + 1))) return {};  // a longer number
  if (next == '/' && later == '.') return {};
  const bool bare = !bracket && between == 0 && !country;
  return {at, bare, text.substr(first, at - first)};
}

// Ten digits in one may be anything: they are a telephone's after a word that says so, or as North America numbers them
// where nothing says that they are something else.
bool is_bare_phone(std::string_view text, size_t begin, const Phone& p) {
  constexpr std::string_view kOfPhones =
      " phone phones telephone tel call calls called calling contact fax mobile cell cellphone text texted dial number "
      "whatsapp sms hotline ring reach me ph mob ";
  if (is_part_of_more(text, begin, p.end)) return false;
  if (has_word_before(text, begin, kOfOthers, 3) || has_word_after(text, p.end, kUnits)) return false;
  if (p.digits.find_first_not_of(p.digits[0]) == kNone) return false;
  if (has_word_before(text, begin, kOfPhones, 3)) return true;
  const char before = before_or_nul(text, begin);
  if (before == '"' || before == '\'' || before == '>') return false;  // a value of a program, or of a page
  const std::string_view d = p.digits;
  const bool as_numbered = d[1] != '9' && d[3] >= '2' && !(d[1] == '1' && d[2] == '1') && !(d[4] == '1' && d[5] == '1');
  return as_numbered && d.substr(4) != "000000";
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

}  // namespace

bool has_word_before(std::string_view text, size_t at, std::string_view words, int num_words) {
  constexpr size_t kFar = 40;
  const size_t stop = at > kFar ? at - kFar : 0;
  for (int n = 0; n < num_words; ++n) {
    while (at > stop && !is_letter(text[at - 1]) && !is_digit(text[at - 1])) {
      if (text[at - 1] == '\n' || (uint8_t(text[at - 1]) & 0x80)) return false;
      --at;
    }
    const size_t end = at;
    while (at > stop && (is_letter(text[at - 1]) || is_digit(text[at - 1]))) --at;
    if (at == end) return false;
    if (words.find(" " + lower_ascii(text.substr(at, end - at)) + " ") != kNone) return true;
  }
  return false;
}

bool has_word_after(std::string_view text, size_t at, std::string_view words) {
  while (at < text.size() && (text[at] == ' ' || text[at] == ')')) ++at;
  size_t end = at;
  while (end < text.size() && end - at < 20 && is_letter(text[end])) ++end;
  return end > at && words.find(" " + lower_ascii(text.substr(at, end - at)) + " ") != kNone;
}

bool is_part_of_more(std::string_view text, size_t begin, size_t end) {
  const char before = before_or_nul(text, begin), after = at_or_nul(text, end);
  if (is_word(before) || is_before_word(text, end)) return true;
  if (before != '\0' && std::string_view("#$/=%&-@").find(before) != kNone) return true;
  if ((before == '.' || before == ',') && begin > 1 && is_digit(text[begin - 2])) return true;
  if ((uint8_t(before) & 0x80) || after == '%' || after == '/' || after == '=' || after == '@') return true;
  return (after == '.' || after == ',' || after == '-' || after == ':') && is_word(at_or_nul(text, end + 1));
}

Found find_iban(std::string_view text, size_t from) {
  constexpr size_t kShortest = 15, kLongest = 34;
  for (size_t at = from; at + kShortest <= text.size(); ++at) {
    if (!is_upper(text[at]) || !is_upper(text[at + 1]) || !is_digit(text[at + 2]) || !is_digit(text[at + 3])) continue;
    const size_t size = iban_size(text.substr(at, 2));
    if (size == 0 || is_after_word(text, at)) continue;
    const Groups g = take_groups(text, at, kLongest, " ", [](char c) { return is_upper(c) || is_digit(c); });
    size_t end = at, symbols = 0;
    for (size_t i = 0; i < g.sizes.size() && symbols < size; ++i) {
      const size_t wanted = g.sizes[0] == size ? size : std::min<size_t>(4, size - symbols);
      if (g.sizes[i] != wanted) break;
      symbols += g.sizes[i];
      end += g.sizes[i] + (i > 0);
    }
    if (symbols == size && !is_before_word(text, end) && has_iban_check(std::string_view(g.symbols).substr(0, size)))
      return {at, end};
  }
  return {};
}

Found find_card(std::string_view text, size_t from) {
  constexpr size_t kShortest = 14, kLongest = 19;
  for (size_t at = from; at + kShortest <= text.size(); ++at) {
    if (text[at] < '2' || text[at] > '6' || is_after_word(text, at)) continue;
    const char before = before_or_nul(text, at);
    if ((before == '.' || before == '-') && at > 1 && is_digit(text[at - 2])) continue;
    const Groups g = take_groups(text, at, kLongest, " -", is_digit);
    const size_t n = card_groups(g);
    if (n == 0) continue;
    size_t end = at + n - 1;
    for (size_t i = 0; i < n; ++i) end += g.sizes[i];
    // One of several such groups is a list of numbers, as of years.
    const bool in_list = g.separator != 0 && ((g.sizes.size() > n && g.sizes[n] == 4) ||
                                              (before == g.separator && at > 1 && is_digit(text[at - 2])));
    const bool bare = g.separator == 0;
    constexpr std::string_view kOfCards = " card cards cc ccnum cardnumber creditcard pan visa mastercard amex ";
    if (in_list || is_before_word(text, end)) continue;
    if (bare && !has_word_before(text, at, kOfCards, 2) &&
        (is_part_of_more(text, at, end) || has_word_before(text, at, kOfOthers, 3)))
      continue;
    return {at, end};
  }
  return {};
}

// 123-45-6789, as the United States number people; in one only after a word that says so.
Found find_ssn(std::string_view text, size_t from) {
  constexpr std::string_view kOfPeople = " ssn ssns ss security social itin taxpayer ";
  for (size_t at = from; at + 9 <= text.size(); ++at) {
    const char before = before_or_nul(text, at);
    if (!is_digit(text[at]) || is_word(before)) continue;
    if ((before == '-' || before == '.' || before == ',' || before == '/') && at > 1 && is_word(text[at - 2])) continue;
    size_t end = at, area = at, group, serial;
    if (!take_digits(text, end, 3)) continue;
    const char first = take_one_of(text, end, "- ");
    group = end;
    if (!take_digits(text, end, 2)) continue;
    const char second = take_one_of(text, end, "- ");
    serial = end;
    if (!take_digits(text, end, 4) || first != second || is_before_word(text, end)) continue;
    const char after = at_or_nul(text, end);
    if ((after == '-' || after == '.' || after == ',' || after == '/') && is_word(at_or_nul(text, end + 1))) continue;
    const std::string_view a = text.substr(area, 3);
    if (a == "000" || a == "666" || text.substr(group, 2) == "00" || text.substr(serial, 4) == "0000") continue;
    if (first != '-' && !has_word_before(text, at, kOfPeople, 4)) continue;
    if (a[0] == '9' && !has_word_before(text, at, kOfPeople, 4)) continue;  // of taxpayers without one
    if (has_word_before(text, at, kOfOthers, 3)) continue;
    return {at, end};
  }
  return {};
}

Found find_phone(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); ++at) {
    const char c = text[at], before = before_or_nul(text, at);
    if ((!is_digit(c) && c != '(' && c != '+') || is_digit(before) || is_letter(before)) continue;
    if ((before == '-' || before == '.') && c != '(' && at > 1 && is_word(text[at - 2])) continue;
    if (c != '(' && (before == '$' || before == '/' || before == '=')) continue;
    const Phone p = phone_at(text, at);
    if (p.end != kNone && (!p.is_bare || is_bare_phone(text, at, p))) return {at, p.end};
  }
  return {};
}

Found find_international_phone(std::string_view text, size_t from) {
  constexpr size_t kFewest = 8, kMost = 15;
  for (size_t plus = text.find('+', from); plus != kNone; plus = text.find('+', plus + 1)) {
    if (is_after_word(text, plus) || !is_digit(at_or_nul(text, plus + 1))) continue;
    std::string digits;
    size_t end = kNone, at = plus + 1;
    while (at < text.size() && digits.size() <= kMost) {
      while (at < text.size() && is_digit(text[at]) && digits.size() <= kMost) digits += text[at++];
      const bool whole = !is_before_word(text, at);
      if (digits.size() <= kMost && digits.size() >= kFewest && whole && country_code_size(digits) > 0) end = at;
      const size_t before = at;
      take_one_of(text, at, " -./");
      take_one_of(text, at, "(");
      if (at_or_nul(text, at) == ')' && at == before) ++at, take_one_of(text, at, " -");
      if (at == before || !is_digit(at_or_nul(text, at))) break;
    }
    if (end != kNone) return {plus, end};
  }
  return {};
}

}  // namespace weft::pii
