// A text as words and lines, as rules count them.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/tokenize/unicode.h"

namespace weft {

// Between white space. Views into the text.
std::vector<std::string_view> split_words(std::string_view text);
// Between line feeds; those of white space alone are left out.
std::vector<std::string_view> split_lines(std::string_view text);
// Between empty lines; the same.
std::vector<std::string_view> split_paragraphs(std::string_view text);
std::string_view trim_white_space(std::string_view text);

// Hashes of the words of a text that is put in lower case, without accents (NFD) and punctuation: what two texts have
// in common whatever their typography. Of Han, Kana, Thai, Lao, Khmer and Burmese, which have no spaces between words,
// each character is a word.
std::vector<uint64_t> plain_word_hashes(const CharacterTable& table, std::string_view text);
// The hash of each sequence of n of them; of fewer words, one of them all.
std::vector<uint64_t> shingle_hashes(const std::vector<uint64_t>& words, int64_t n);

}  // namespace weft
