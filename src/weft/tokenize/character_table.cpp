// Classes of characters, their table, and normal forms, by utf8proc.
#include <utf8proc.h>

#include <algorithm>
#include <map>

#include "weft/base/error.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

constexpr char32_t kCodes = 0x110000;

uint8_t category_bits(utf8proc_propval_t category) {
  using T = CharacterTable;
  if (category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT) return T::kLetter | T::kUpperLike;
  if (category == UTF8PROC_CATEGORY_LL) return T::kLetter | T::kLowerLike;
  if (category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO)
    return T::kLetter | T::kUpperLike | T::kLowerLike;
  if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) return T::kUpperLike | T::kLowerLike;
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO ? T::kNumber : 0;
}
utf8proc_category_t category(char32_t code) { return utf8proc_category(utf8proc_int32_t(code)); }

bool is_surrogate(char32_t code) { return code >= 0xd800 && code < 0xe000; }

// Appends the decomposition of a character.
void decompose(char32_t code, bool compatibility, std::vector<utf8proc_int32_t>& out) {
  constexpr size_t kLongest = 32;  // 18 in Unicode 15
  utf8proc_int32_t parts[kLongest];
  int last = 0;
  const auto how = utf8proc_option_t(UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0));
  const auto n = utf8proc_decompose_char(utf8proc_int32_t(code), parts, kLongest, how, &last);
  if (n < 0 || size_t(n) > kLongest)
    out.push_back(utf8proc_int32_t(code));
  else
    out.insert(out.end(), parts, parts + n);
}

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

bool is_hangul_tail(char32_t code) { return code >= 0x1160 && code < 0x1200; }  // vowels and last consonants

bool decomposes(char32_t code) { return utf8proc_get_property(utf8proc_int32_t(code))->decomp_seqindex != UINT16_MAX; }

// Planes 4 to 13 have no characters.
bool is_empty_block(size_t block) { return block >= 0x400 && block < 0xe00; }

// Characters that stand second in the decomposition of another: they join the one before when composed.
std::vector<bool> seconds() {
  std::vector<bool> second(kCodes, false);
  std::vector<utf8proc_int32_t> parts;
  for (char32_t code = 0xa0; code < kCodes; ++code) {
    if (is_empty_block(code >> 8) || !decomposes(code)) continue;
    parts.clear();
    decompose(code, false, parts);
    for (size_t i = 1; i < parts.size(); ++i) second[size_t(parts[i])] = true;
  }
  return second;
}

// What stands before it is normalized alone, in every form.
bool begins_a_part(char32_t code, const std::vector<bool>& second) {
  std::vector<utf8proc_int32_t> parts;
  if (decomposes(code)) decompose(code, true, parts);
  for (const auto c : {utf8proc_int32_t(code), parts.empty() ? utf8proc_int32_t(code) : parts[0]})
    if (combining_class(c) != 0 || second[size_t(c)] || is_hangul_tail(char32_t(c))) return false;
  return true;
}

// Marks of one character are sorted by their class; equal ones keep their order.     Unicode 15, section 3.11
void sort_marks(std::vector<utf8proc_int32_t>& codes) {
  for (auto at = codes.begin(); at != codes.end();) {
    at = std::find_if(at, codes.end(), [](auto c) { return combining_class(c) != 0; });
    const auto end = std::find_if(at, codes.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(at, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

// One part of a text that no other part joins.
void normalize_part(NormalForm form, std::string_view part, std::vector<utf8proc_int32_t>& codes, std::string& out) {
  codes.clear();
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  for (size_t at = 0; at < part.size();) {
    const Character c = first_character(part.substr(at));
    decompose(c.code, compatibility, codes);
    at += c.bytes;
  }
  sort_marks(codes);
  auto length = utf8proc_ssize_t(codes.size());
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc)
    length = utf8proc_normalize_utf32(codes.data(), length, utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  WEFT_CHECK(length >= 0, "utf8proc cannot compose: {}", utf8proc_errmsg(length));
  for (utf8proc_ssize_t i = 0; i < length; ++i) append_character(out, char32_t(codes[size_t(i)]));
}

}  // namespace

CharacterTable::CharacterTable() {
  const std::vector<bool> second = seconds();
  std::map<std::array<uint8_t, 256>, uint16_t> known;
  for (size_t b = 0; b < block_of_.size(); ++b) {
    if (is_empty_block(b) && is_empty_block(b - 1)) {
      block_of_[b] = block_of_[b - 1];
      continue;
    }
    std::array<uint8_t, 256> block;
    for (size_t i = 0; i < 256; ++i) {
      const auto code = char32_t(b * 256 + i);
      const auto* property = utf8proc_get_property(utf8proc_int32_t(code));
      uint8_t bits = category_bits(property->category);
      if (is_white_space(code)) bits |= kSpace;
      if (code == '\n' || code == '\r') bits |= kNewline;
      const bool boundary = begins_a_part(code, second);
      if (boundary) bits |= kBoundary;
      // Precomposed characters that stay so have a decomposition too; telling them apart takes a normalization.
      bool stays = property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0;
      if (!stays && !is_surrogate(code)) {
        std::string text, normal;
        std::vector<utf8proc_int32_t> codes;
        append_character(text, code);
        normalize_part(NormalForm::kNfc, text, codes, normal);
        stays = text == normal;
      }
      if (boundary && stays) bits |= kComposed;
      block[i] = bits;
    }
    const auto [at, is_new] = known.emplace(block, uint16_t(blocks_.size()));
    if (is_new) blocks_.push_back(block);
    block_of_[b] = at->second;
  }
  for (size_t c = 0; c < ascii_.size(); ++c) ascii_[c] = of(char32_t(c));
}

bool has_unicode() { return true; }
void need_unicode(std::string_view) {}

std::shared_ptr<const CharacterTable> make_character_table(std::string_view) {
  return std::make_shared<CharacterTable>();
}

std::string normalize(const CharacterTable& table, NormalForm form, std::string_view text) {
  const uint8_t wanted = form == NormalForm::kNfc ? CharacterTable::kComposed : 0;
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> codes;
  // A part begins at a boundary and ends before the next one; parts of one character that stays are only copied.
  for (size_t at = 0; at < text.size();) {
    Character c = first_character(text.substr(at));
    bool stays = c.code < 0x80 || (table.of(c.code) & wanted);
    size_t end = at + c.bytes;
    for (; end < text.size(); end += c.bytes) {
      c = first_character(text.substr(end));
      if (c.code < 0x80 || (table.of(c.code) & CharacterTable::kBoundary)) break;
      stays = false;
    }
    if (stays)
      out += text.substr(at, end - at);
    else
      normalize_part(form, text.substr(at, end - at), codes, out);
    at = end;
  }
  return out;
}

bool is_letter(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}
bool is_number(char32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}
bool is_punctuation(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}
bool is_other(char32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_CN || c >= UTF8PROC_CATEGORY_CC;
}
bool is_mark(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}
bool is_nonspacing_mark(char32_t code) { return category(code) == UTF8PROC_CATEGORY_MN; }

bool is_word_character(char32_t code) {
  const auto c = category(code);
  if (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) return true;  // L, M, Nd, Nl
  if (c == UTF8PROC_CATEGORY_PC || code == 0x200c || code == 0x200d) return true;
  return (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
         (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189);  // letters in circles, squares
}

void append_lower(std::string& text, char32_t code) {
  if (code == 0x130) {  // the only one whose lower case is two characters (SpecialCasing.txt)
    text += "i\xcc\x87";
    return;
  }
  append_character(text, char32_t(utf8proc_tolower(utf8proc_int32_t(code))));
}

void append_upper(std::string& text, char32_t code) {
  if (code == 0xdf) {  // the one of those whose upper case is two characters that texts have
    text += "SS";
    return;
  }
  append_character(text, char32_t(utf8proc_toupper(utf8proc_int32_t(code))));
}

size_t first_grapheme(std::string_view text) {
  Character c = first_character(text);
  size_t end = c.bytes;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const Character next = first_character(text.substr(end));
    if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(c.code), utf8proc_int32_t(next.code), &state)) break;
    end += next.bytes;
    c = next;
  }
  return end;
}

}  // namespace weft
