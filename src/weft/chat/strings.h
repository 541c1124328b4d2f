// What Python does with strings. All count in characters.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::chat {

bool is_blank(char32_t code);  // str.isspace

std::string escape_html(std::string_view text);

enum class Side { kBoth, kLeft, kRight };
// Without `chars`, blanks.
std::string_view strip(std::string_view text, const std::optional<std::string>& chars, Side side);

std::string lower(std::string_view text);
std::string upper(std::string_view text);
std::string capitalize(std::string_view text);
// Each word begins in upper case: what follows anything but a letter, or what follows a blank or - ( { [ <.
enum class Words { kByLetters, kByBlanks };
std::string title(std::string_view text, Words words);

// At most `limit` times (below 0: always), from the left or from the right. By blanks, without `by`.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& by, int64_t limit, Side from);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
std::string replace(std::string_view text, std::string_view what, std::string_view by, int64_t limit);
int64_t count(std::string_view text, std::string_view what);

// Places in characters; npos of std::string is -1.
int64_t character_of_byte(std::string_view text, size_t byte);
size_t byte_of_character(std::string_view text, int64_t character);
// text[begin:end] as in Python: below 0 from the end.
std::string_view between(std::string_view text, int64_t begin, int64_t end);

// Whether there is a character and all (of those with a case, for upper and lower) are so.
enum class Is { kSpace, kLetter, kDigit, kAlphanumeric, kUpper, kLower, kAscii };
bool all_are(std::string_view text, Is what);

std::string pad(std::string_view text, int64_t width, std::string_view fill, Side text_at);

}  // namespace weft::chat
