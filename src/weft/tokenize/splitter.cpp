#include "weft/tokenize/splitter.h"

#include "weft/base/ascii.h"

namespace weft {
namespace {

using T = CharacterTable;

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// One look at a text: where it stands, and what the next character is.
class Scan {
 public:
  Scan(const T& table, std::string_view text) : table_(table), text_(text) {}

  size_t size() const { return text_.size(); }
  char byte(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  // The class of the character at `at` and where it ends; 0 at the end of the text.
  uint8_t look(size_t at, size_t& end) const {
    end = at;
    if (at >= text_.size()) return 0;
    const auto c = uint8_t(text_[at]);
    if (c < 0x80) {
      end = at + 1;
      return table_.ascii(c);
    }
    const Character character = first_character(text_.substr(at));
    end = at + character.bytes;
    return table_.of(character.code);
  }
  uint8_t look(size_t at) const {
    size_t end;
    return look(at, end);
  }
  // The end of the characters from `at` on that have one of these classes.
  size_t skip(size_t at, uint8_t classes) const {
    for (size_t end; look(at, end) & classes;) at = end;
    return at;
  }
  size_t skip_bytes(size_t at, std::string_view bytes) const {
    while (at < text_.size() && bytes.find(text_[at]) != std::string_view::npos) ++at;
    return at;
  }
  // The end of the characters that are not space, letter or number.
  size_t skip_symbols(size_t at) const {
    for (size_t end; at < text_.size() && !(look(at, end) & (T::kSpace | T::kLetter | T::kNumber));) at = end;
    return at;
  }
  size_t skip_numbers(size_t at, int at_most) const {
    size_t end;
    for (int n = 0; (at_most == 0 || n < at_most) && (look(at, end) & T::kNumber); ++n) at = end;
    return at;
  }
  // 's, 't, 're, 've, 'm, 'll, 'd; `at` if there is none. Without regard to case, U+017F is an s.
  size_t contraction(size_t at, bool any_case) const {
    if (byte(at) != '\'') return at;
    const auto lower = [&](char c) { return any_case ? lower_ascii(c) : c; };
    const char a = lower(byte(at + 1)), b = lower(byte(at + 2));
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    if (any_case && byte(at + 1) == '\xc5' && byte(at + 2) == '\xbf') return at + 3;
    return at;
  }
  // \s*[\r\n]+ (where `newlines`) | \s+(?!\S) | \s+, from a space on.
  size_t spaces(size_t at, bool newlines) const {
    size_t end = at, last = at, after_newline = at;
    for (size_t next; look(end, next) & T::kSpace; end = next) {
      last = end;
      if (table_.ascii(uint8_t(text_[end]) & 0x7f) & T::kNewline && uint8_t(text_[end]) < 0x80) after_newline = next;
    }
    if (newlines && after_newline > at) return after_newline;
    return end == text_.size() || last == at ? end : last;  // the last one belongs to what follows
  }

 private:
  const T& table_;
  std::string_view text_;
};

size_t gpt2_end(const Scan& scan, size_t from) {
  if (const size_t end = scan.contraction(from, false); end > from) return end;
  const size_t at = from + (scan.byte(from) == ' ');
  const uint8_t kind = scan.look(at);
  if (kind & T::kLetter) return scan.skip(at, T::kLetter);
  if (kind & T::kNumber) return scan.skip(at, T::kNumber);
  if (at < scan.size() && !(kind & T::kSpace)) return scan.skip_symbols(at);
  return scan.spaces(from, false);
}

// What numbers, symbols and spaces have in common in the later families.
size_t other_end(const Scan& scan, size_t from, int digits, std::string_view after_symbols) {
  if (scan.look(from) & T::kNumber) return scan.skip_numbers(from, digits);
  const size_t at = from + (scan.byte(from) == ' ');
  if (const size_t end = scan.skip_symbols(at); end > at) return scan.skip_bytes(end, after_symbols);
  return scan.spaces(from, true);
}

size_t cl100k_end(const Scan& scan, size_t from, int digits) {
  if (const size_t end = scan.contraction(from, true); end > from) return end;
  size_t next;
  const uint8_t kind = scan.look(from, next);
  if (kind & T::kLetter) return scan.skip(next, T::kLetter);
  if (!(kind & (T::kNumber | T::kNewline)) && (scan.look(next) & T::kLetter)) return scan.skip(next, T::kLetter);
  return other_end(scan, from, digits, "\r\n");
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ and its second form, from `at` on; `at` where neither
// matches. `lower_found`: the first form did.
size_t word_end(const Scan& scan, size_t at, bool& lower_found) {
  size_t upper = at, next, last_both = at;
  for (uint8_t kind; (kind = scan.look(upper, next)) & T::kUpperLike; upper = next)
    if (kind & T::kLowerLike) last_both = next;
  const size_t lower = scan.skip(upper, T::kLowerLike);
  lower_found = lower > upper || last_both > at;
  if (lower > upper) return lower;
  return last_both > at ? last_both : upper;
}

size_t o200k_end(const Scan& scan, size_t from, int digits) {
  size_t next;
  const uint8_t kind = scan.look(from, next);
  bool lower_with = false, lower_without = false;
  const bool may_lead = !(kind & (T::kLetter | T::kNumber | T::kNewline));
  const size_t with = may_lead ? word_end(scan, next, lower_with) : next;
  const bool may_begin = kind & (T::kUpperLike | T::kLowerLike);
  if (may_lead && lower_with) return scan.contraction(with, true);
  const size_t without = may_begin ? word_end(scan, from, lower_without) : from;
  if (lower_without) return scan.contraction(without, true);
  if (may_lead && with > next) return scan.contraction(with, true);
  if (without > from) return scan.contraction(without, true);
  return other_end(scan, from, digits, "\r\n/");
}

}  // namespace

std::optional<Splitter::Rules> Splitter::rules_named(std::string_view name) {
  if (name == "r50k" || name == "gpt2" || name == "p50k") return Rules{Family::kGpt2, 0};
  if (name == "cl100k" || name == "llama3") return Rules{Family::kCl100k, 3};
  if (name == "qwen2" || name == "qwen") return Rules{Family::kCl100k, 1};
  if (name == "o200k") return Rules{Family::kO200k, 3};
  return {};
}

std::optional<Splitter::Rules> Splitter::rules_of(std::string_view expression) {
  for (const char* name : {"r50k", "cl100k", "qwen2", "o200k"})
    if (expression == expression_of(*rules_named(name))) return rules_named(name);
  return {};
}

std::string_view Splitter::expression_of(Rules rules) {
  switch (rules.family) {
    case Family::kGpt2:
      return kGpt2;
    case Family::kO200k:
      return kO200k;
    case Family::kCl100k:
      break;
  }
  return rules.digits == 1 ? kQwen2 : kCl100k;
}

size_t Splitter::end_of_piece(std::string_view text, size_t from) const {
  const Scan scan(*table_, text);
  switch (rules_.family) {
    case Family::kGpt2:
      return gpt2_end(scan, from);
    case Family::kCl100k:
      return cl100k_end(scan, from, rules_.digits);
    case Family::kO200k:
      return o200k_end(scan, from, rules_.digits);
  }
  return text.size();
}

bool Splitter::always_splits(char before, char after) {
  const bool letter = (before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z');
  return letter && (after == ' ' || after == '\n');
}

}  // namespace weft
