// Instead of character_table.cpp, in a build without utf8proc.
#include "weft/base/not_built.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

[[noreturn]] void fail(std::string_view what) {
  throw NotBuilt(fmt::format("{}: what knows the classes of Unicode characters", what), "utf8proc");
}
[[noreturn]] void fail_at(char32_t code) { fail(fmt::format("U+{:04X}", uint32_t(code))); }

}  // namespace

bool has_unicode() { return false; }
void need_unicode(std::string_view what) { fail(what); }

CharacterTable::CharacterTable() { fail("a table of characters"); }
std::shared_ptr<const CharacterTable> make_character_table(std::string_view what) { fail(what); }

bool is_letter(char32_t code) { fail_at(code); }
bool is_number(char32_t code) { fail_at(code); }
bool is_punctuation(char32_t code) { fail_at(code); }
bool is_other(char32_t code) { fail_at(code); }
bool is_mark(char32_t code) { fail_at(code); }
bool is_nonspacing_mark(char32_t code) { fail_at(code); }
bool is_word_character(char32_t code) { fail_at(code); }
void append_lower(std::string&, char32_t code) { fail_at(code); }
void append_upper(std::string&, char32_t code) { fail_at(code); }
std::string normalize(const CharacterTable&, NormalForm, std::string_view) { fail("a normal form"); }
size_t first_grapheme(std::string_view) { fail("grapheme clusters"); }

}  // namespace weft
