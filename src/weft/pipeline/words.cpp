#include "weft/pipeline/words.h"

#include <algorithm>

#include "weft/base/ascii.h"
#include "weft/base/hashing.h"

namespace weft {
namespace {

bool is_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::vector<std::string_view> split_at(std::string_view text, std::string_view mark) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(mark, at), text.size());
    const std::string_view part = trim_white_space(text.substr(at, end - at));
    if (!part.empty()) parts.push_back(part);
    at = end + mark.size();
  }
  return parts;
}

bool is_ascii_punctuation(unsigned char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Unicode blocks of scripts without spaces between words, where each character counts as a word.
bool is_word_by_itself(uint32_t code) {
  struct Block {
    uint32_t first, last;
  };
  constexpr Block kBlocks[] = {{0x0e00, 0x0eff},  // Thai, Lao
                               {0x1000, 0x109f},  // Burmese
                               {0x1780, 0x17ff},  // Khmer
                               {0x2e80, 0x2fdf},  // Han: radicals
                               {0x3005, 0x3007},  // its marks of repetition and zero
                               {0x3041, 0x30ff},  // Hiragana, Katakana
                               {0x31f0, 0x31ff},  // Katakana's small letters
                               {0x3400, 0x4dbf},  // Han
                               {0x4e00, 0x9fff},  {0xf900, 0xfaff}, {0xff66, 0xff9f},  // Katakana of half width
                               {0x20000, 0x323af}};                                    // Han
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [&](const Block& b) { return code >= b.first && code <= b.last; });
}

// The text in lower case, with accents as characters of their own.
std::string decomposed(const CharacterTable& table, std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; });
  if (ascii) return std::string(text);
  return normalize(table, NormalForm::kNfd, text);
}

}  // namespace

std::string_view trim_white_space(std::string_view text) {
  while (!text.empty() && is_space(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0, at = 0;
  const auto end_word = [&] {
    if (at > begin) words.push_back(text.substr(begin, at - begin));
  };
  while (at < text.size()) {
    const auto c = static_cast<unsigned char>(text[at]);
    uint32_t bytes = 1;
    bool space = is_space(c);
    if (c >= 0x80) {
      const Character character = first_character(text.substr(at));
      bytes = character.bytes;
      space = is_white_space(character.code);
    }
    if (space) {
      end_word();
      begin = at + bytes;
    }
    at += bytes;
  }
  end_word();
  return words;
}

std::vector<std::string_view> split_lines(std::string_view text) { return split_at(text, "\n"); }
std::vector<std::string_view> split_paragraphs(std::string_view text) { return split_at(text, "\n\n"); }

std::vector<uint64_t> plain_word_hashes(const CharacterTable& table, std::string_view original) {
  const std::string text = decomposed(table, original);
  std::vector<uint64_t> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(hash64(word));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c < 0x80) {
      if (is_space(c))
        end_word();
      else if (!is_ascii_punctuation(c))
        word += lower_ascii(char(c));
      ++at;
      continue;
    }
    const Character character = first_character(std::string_view(text).substr(at));
    if (is_white_space(character.code)) {
      end_word();
    } else if (!is_nonspacing_mark(character.code) && !is_punctuation(character.code)) {
      const bool alone = is_word_by_itself(character.code);
      if (alone) end_word();
      append_lower(word, character.code);
      if (alone) end_word();
    }
    at += character.bytes;
  }
  end_word();
  return words;
}

std::vector<uint64_t> shingle_hashes(const std::vector<uint64_t>& words, int64_t n) {
  constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;
  std::vector<uint64_t> hashes;
  if (words.empty()) return hashes;
  const size_t width = std::min(size_t(n), words.size());
  hashes.reserve(words.size() - width + 1);
  for (size_t i = 0; i + width <= words.size(); ++i) {
    uint64_t h = 0;
    for (size_t k = 0; k < width; ++k) {
      h = (h ^ words[i + k]) * kMix;
      h ^= h >> 29;
    }
    hashes.push_back(h);
  }
  return hashes;
}

}  // namespace weft
