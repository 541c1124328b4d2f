#include "weft/chat/strings.h"

#include <algorithm>

#include "weft/tokenize/unicode.h"

namespace weft::chat {
namespace {

template <class F>
void each(std::string_view text, const F& take) {
  for (size_t at = 0; at < text.size();) {
    const Character c = first_character(text.substr(at));
    take(c.code);
    at += c.bytes;
  }
}

std::string one_lower(char32_t code) {
  std::string text;
  append_lower(text, code);
  return text;
}
std::string one_upper(char32_t code) {
  std::string text;
  append_upper(text, code);
  return text;
}
std::string one(char32_t code) {
  std::string text;
  append_character(text, code);
  return text;
}
bool is_upper_case(char32_t code) { return one_lower(code) != one(code); }
bool is_lower_case(char32_t code) { return one_upper(code) != one(code); }
bool has_case(char32_t code) { return is_upper_case(code) || is_lower_case(code); }

// The first character that is a blank, or, from the right, the last one: where it begins and ends. npos: none.
std::pair<size_t, size_t> blank_in(std::string_view text, Side from) {
  if (from == Side::kLeft) {
    for (size_t at = 0; at < text.size();) {
      const Character c = first_character(text.substr(at));
      if (is_blank(c.code)) return {at, at + c.bytes};
      at += c.bytes;
    }
  }
  while (from == Side::kRight && !text.empty()) {
    const Character c = last_character(text);
    if (is_blank(c.code)) return {text.size() - c.bytes, text.size()};
    text.remove_suffix(c.bytes);
  }
  return {std::string_view::npos, std::string_view::npos};
}

bool ends_line(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is(Is what, char32_t c) {
  if (what == Is::kSpace) return is_blank(c);
  if (what == Is::kLetter) return is_letter(c);
  if (what == Is::kDigit) return is_number(c);
  if (what == Is::kAlphanumeric) return is_letter(c) || is_number(c);
  if (what == Is::kUpper) return !is_lower_case(c);
  if (what == Is::kLower) return !is_upper_case(c);
  return c < 0x80;
}

}  // namespace

bool is_blank(char32_t code) { return is_white_space(code) || (code >= 0x1c && code <= 0x1f); }

std::string escape_html(std::string_view text) {
  std::string out;
  for (char c : text) {
    constexpr std::string_view kSigns = "&<>\"'";
    constexpr const char* kNames[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    const size_t at = kSigns.find(c);
    if (at == std::string_view::npos)
      out += c;
    else
      out += kNames[at];
  }
  return out;
}

std::string_view strip(std::string_view text, const std::optional<std::string>& chars, Side side) {
  const auto goes = [&](char32_t code) { return chars ? chars->find(one(code)) != std::string::npos : is_blank(code); };
  while (side != Side::kRight && !text.empty() && goes(first_character(text).code))
    text.remove_prefix(first_character(text).bytes);
  while (side != Side::kLeft && !text.empty() && goes(last_character(text).code))
    text.remove_suffix(last_character(text).bytes);
  return text;
}

std::string lower(std::string_view text) {
  std::string out;
  each(text, [&](char32_t c) { append_lower(out, c); });
  return out;
}
std::string upper(std::string_view text) {
  std::string out;
  each(text, [&](char32_t c) { append_upper(out, c); });
  return out;
}
std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const Character c = first_character(text);
  return one_upper(c.code) + lower(text.substr(c.bytes));
}
std::string title(std::string_view text, Words words) {
  std::string out;
  bool begins = true;
  each(text, [&](char32_t c) {
    begins ? append_upper(out, c) : append_lower(out, c);
    constexpr std::string_view kBefore = "-({[<";
    begins = words == Words::kByLetters ? !has_case(c)
                                        : is_blank(c) || (c < 0x80 && kBefore.find(char(c)) != std::string_view::npos);
  });
  return out;
}

std::vector<std::string> split(std::string_view text, const std::optional<std::string>& by, int64_t limit, Side from) {
  std::vector<std::string> parts;
  const bool right = from == Side::kRight;
  if (!by) text = strip(text, {}, from);
  while (by || !text.empty()) {
    std::pair<size_t, size_t> cut{std::string_view::npos, 0};
    if (limit-- != 0) cut = by ? std::pair(right ? text.rfind(*by) : text.find(*by), by->size()) : blank_in(text, from);
    if (cut.first == std::string_view::npos) break;
    if (by) cut.second += cut.first;
    parts.emplace_back(right ? text.substr(cut.second) : text.substr(0, cut.first));
    text = right ? text.substr(0, cut.first) : text.substr(cut.second);
    if (!by) text = strip(text, {}, from);
  }
  if (by || !text.empty()) parts.emplace_back(text);
  if (right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = first_character(text.substr(at));
    const size_t end = at;
    at += c.bytes;
    if (!ends_line(c.code)) continue;
    if (c.code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view what, std::string_view by, int64_t limit) {
  std::string out;
  size_t at = 0;
  for (; limit != 0; --limit) {
    const size_t found = text.find(what, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += by;
    at = found + what.size();
    if (!what.empty()) continue;
    if (at == text.size()) break;
    const size_t bytes = first_character(text.substr(at)).bytes;
    out += text.substr(at, bytes);
    at += bytes;
  }
  return out + std::string(text.substr(at));
}

int64_t count(std::string_view text, std::string_view what) {
  if (what.empty()) return count_characters(text) + 1;
  int64_t found = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size()) ++found;
  return found;
}

int64_t character_of_byte(std::string_view text, size_t byte) {
  return byte == std::string_view::npos ? -1 : count_characters(text.substr(0, byte));
}
size_t byte_of_character(std::string_view text, int64_t character) {
  size_t at = 0;
  for (; character > 0 && at < text.size(); --character) at += first_character(text.substr(at)).bytes;
  return at;
}
std::string_view between(std::string_view text, int64_t begin, int64_t end) {
  const int64_t size = count_characters(text);
  const auto place = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const size_t from = byte_of_character(text, place(begin)), to = byte_of_character(text, place(end));
  return from < to ? text.substr(from, to - from) : text.substr(0, 0);
}

bool all_are(std::string_view text, Is what) {
  const bool by_case = what == Is::kUpper || what == Is::kLower;
  bool some = what == Is::kAscii, all = true;
  each(text, [&](char32_t c) {
    some |= !by_case || has_case(c);
    all &= is(what, c);
  });
  return some && all;
}

std::string pad(std::string_view text, int64_t width, std::string_view fill, Side text_at) {
  const int64_t missing = std::max<int64_t>(0, width - count_characters(text));
  const int64_t left = text_at == Side::kLeft    ? 0
                       : text_at == Side::kRight ? missing
                                                 : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace weft::chat
