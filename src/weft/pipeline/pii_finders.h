// How each kind of personal data is found (pii.h lists them). A finder gives the first at `from` or later, and looks at
// a bounded part of the text around each place, so that all of them are linear.
#pragma once
#include <string_view>

#include "weft/base/ascii.h"
#include "weft/pipeline/pii.h"

namespace weft::pii {

using Found = PiiKind::Found;
inline constexpr size_t kNone = std::string_view::npos;

Found find_email(std::string_view text, size_t from);
Found find_ipv4(std::string_view text, size_t from);
Found find_ipv6(std::string_view text, size_t from);
Found find_iban(std::string_view text, size_t from);
Found find_card(std::string_view text, size_t from);
Found find_ssn(std::string_view text, size_t from);
Found find_phone(std::string_view text, size_t from);
Found find_international_phone(std::string_view text, size_t from);
Found find_api_key(std::string_view text, size_t from);
Found find_private_key(std::string_view text, size_t from);

// --- what they share ---

inline bool is_digit(char c) { return is_ascii_digit(c); }
inline bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
inline bool is_letter(char c) { return is_ascii_letter(c); }
inline bool is_hex(char c) { return hex_digit(c) >= 0; }
// An ASCII letter or digit, or a byte of another letter: text beside it is a part of something longer.
inline bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_' || !is_ascii(c); }
inline char at_or_nul(std::string_view text, size_t at) { return at < text.size() ? text[at] : '\0'; }
inline char before_or_nul(std::string_view text, size_t at) { return at > 0 ? text[at - 1] : '\0'; }
inline bool is_after_word(std::string_view text, size_t at) { return at > 0 && is_word(text[at - 1]); }
// ASCII only: Chinese and Japanese put no space before an address.
inline bool is_after_ascii_word(std::string_view text, size_t at) {
  return is_after_word(text, at) && is_ascii(text[at - 1]);
}
inline bool is_before_word(std::string_view text, size_t at) { return at < text.size() && is_word(text[at]); }

// Whether one of the last few words before a place, in its line and in any case, is one of `words`, which are in lower
// case with a space around each: " version v ".
bool has_word_before(std::string_view text, size_t at, std::string_view words, int num_words);
// The same of the word after a place.
bool has_word_after(std::string_view text, size_t at, std::string_view words);
// A number without separators at `at` that is a part of something else: of a name, a path, a sum, a decimal.
bool is_part_of_more(std::string_view text, size_t begin, size_t end);

}  // namespace weft::pii
