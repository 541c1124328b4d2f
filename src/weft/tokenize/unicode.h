// Unicode, as far as tokenizers need it: characters, their classes, and normal forms. Texts are UTF-8; functions that
// take a text expect it well-formed (well_formed() makes it so), but read no byte outside of one that is not.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

inline constexpr char32_t kReplacement = 0xfffd;

struct Character {
  char32_t code;
  uint32_t bytes;
};

// The character at the beginning of `text`, which is not empty. A byte that begins none is U+FFFD of one byte.
Character first_character(std::string_view text);
// The same of the last one.
Character last_character(std::string_view text);
void append_character(std::string& text, char32_t code);
int64_t count_characters(std::string_view text);

// `text`, or, where it is not well-formed, a copy in `copy` in which each longest part of a broken character is U+FFFD
// (Unicode 15, section 3.9, "substitution of maximal subparts").
std::string_view well_formed(std::string_view text, std::string& copy);

// A table of the character properties that the known pre-tokenizers need.
class CharacterTable {
 public:
  enum Class : uint8_t {
    kLetter = 1,     // L
    kUpperLike = 2,  // Lu, Lt, Lm, Lo, M
    kLowerLike = 4,  // Ll, Lm, Lo, M
    kNumber = 8,     // N
    kSpace = 16,     // White_Space
    kComposed = 32,  // alone and after anything, it is its own NFC
    kBoundary = 64,  // does not join what stands before it when normalized
    kNewline = 128,  // LF, CR
  };
  CharacterTable();

  uint8_t ascii(unsigned char c) const { return ascii_[c]; }
  uint8_t of(char32_t code) const { return code <= 0x10ffff ? blocks_[block_of_[code >> 8]][code & 0xff] : 0; }

 private:
  std::array<uint8_t, 128> ascii_;
  std::array<uint16_t, 0x1100> block_of_;
  std::vector<std::array<uint8_t, 256>> blocks_;
};
// Throws as need_unicode does.
std::shared_ptr<const CharacterTable> make_character_table(std::string_view what = "this tokenizer");

// Whether this build of weft has utf8proc. All below needs it, except is_white_space and is_surely_nfc; check before
// the work with need_unicode.
bool has_unicode();
// Throws NotBuilt, which begins with `what`, where it does not.
void need_unicode(std::string_view what);

bool is_white_space(char32_t code);
bool is_letter(char32_t code);                        // L
bool is_number(char32_t code);                        // N
bool is_punctuation(char32_t code);                   // P
bool is_other(char32_t code);                         // C: control, format, private, surrogate, unassigned
bool is_mark(char32_t code);                          // M
bool is_nonspacing_mark(char32_t code);               // Mn
bool is_word_character(char32_t code);                // \w: Alphabetic, M, Nd, Pc, Join_Control
void append_lower(std::string& text, char32_t code);  // each character alone, without regard to its neighbours
void append_upper(std::string& text, char32_t code);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Linear in the text but for runs of combining marks, which are sorted.
std::string normalize(const CharacterTable& table, NormalForm form, std::string_view text);
// Whether `text` surely is its own NFC: fast, and may say no of a text that is.
bool is_surely_nfc(const CharacterTable& table, std::string_view text);

// The end of the first grapheme cluster of a text that is not empty.      Unicode Standard Annex 29
size_t first_grapheme(std::string_view text);

}  // namespace weft
