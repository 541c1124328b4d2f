#include "weft/tokenize/normalizers.h"

#include <array>

#include "weft/tokenize/bpe.h"
#include "weft/tokenize/byte_alphabet.h"
#include "weft/tokenize/component.h"
#include "weft/tokenize/rank_file.h"

namespace weft {
namespace {

using Table = std::shared_ptr<const CharacterTable>;

constexpr const char* kKnownNormalizers =
    "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, Precompiled, BertNormalizer, Nmt, "
    "ByteLevel, Sequence";

// The text with each character put through `f(out, code)`.
template <class F>
std::string mapped(std::string_view text, const F& f) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character c = first_character(text.substr(at));
    f(out, c.code);
    at += c.bytes;
  }
  return out;
}

std::string lower(std::string_view text) { return mapped(text, append_lower); }

std::string without_marks(std::string_view text, bool (*is_dropped)(char32_t)) {
  return mapped(text, [&](std::string& out, char32_t c) {
    if (!is_dropped(c)) append_character(out, c);
  });
}

Normalizer normal_form(NormalForm form, const Table& table) {
  return [form, table](std::string text, PatternSpace&) {
    if (form == NormalForm::kNfc && is_surely_nfc(*table, text)) return text;
    return normalize(*table, form, text);
  };
}

// --- BertNormalizer ---

bool is_cjk(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

std::string clean(std::string_view text) {
  return mapped(text, [](std::string& out, char32_t c) {
    const bool blank = c == '\t' || c == '\n' || c == '\r' || is_white_space(c);
    if (c == 0 || c == kReplacement || (!blank && is_other(c))) return;
    if (blank)
      out += ' ';
    else
      append_character(out, c);
  });
}

std::string pad_cjk(std::string_view text) {
  return mapped(text, [](std::string& out, char32_t c) {
    if (is_cjk(c)) out += ' ';
    append_character(out, c);
    if (is_cjk(c)) out += ' ';
  });
}

Normalizer bert(const Component& c, const Table& table) {
  const JsonFields f = c.fields();
  const bool cleans = f.flag("clean_text", true), pads = f.flag("handle_chinese_chars", true);
  const bool lowers = f.flag("lowercase", true), strips = f.flag("strip_accents", lowers);
  const auto slow = [=](std::string text) {
    if (cleans) text = clean(text);
    if (pads) text = pad_cjk(text);
    if (strips) text = without_marks(normalize(*table, NormalForm::kNfd, text), is_nonspacing_mark);
    return lowers ? lower(text) : text;
  };
  // No rule reaches from a character of ASCII to its neighbours.
  std::array<std::string, 128> ascii;
  for (size_t i = 0; i < ascii.size(); ++i) ascii[i] = slow(std::string(1, char(i)));
  return [slow, ascii](std::string text, PatternSpace&) {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      if (uint8_t(text[at]) < ascii.size()) {
        out += ascii[uint8_t(text[at++])];
        continue;
      }
      const size_t begin = at;
      while (at < text.size() && uint8_t(text[at]) >= ascii.size()) ++at;
      out += slow(text.substr(begin, at - begin));
    }
    return out;
  };
}

// --- others ---

std::string nmt(std::string_view text) {
  return mapped(text, [](std::string& out, char32_t c) {
    const bool dropped =
        (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
    const bool blank = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == kReplacement;
    if (dropped) return;
    append_character(out, blank ? ' ' : c);
  });
}

std::string strip(std::string text, bool left, bool right) {
  std::string_view rest = text;
  while (left && !rest.empty() && is_white_space(first_character(rest).code))
    rest.remove_prefix(first_character(rest).bytes);
  while (right && !rest.empty() && is_white_space(last_character(rest).code))
    rest.remove_suffix(last_character(rest).bytes);
  return std::string(rest);
}

Normalizer replace(const Component& c) {
  const PatternText what = read_pattern(c);
  const std::string by = c.fields().string("content");
  if (!what.is_regex) return [what, by](std::string text, PatternSpace&) { return with_replaced(text, what.text, by); };
  const auto pattern = std::make_shared<Pattern>(what.text, c.source);
  return [pattern, by](std::string text, PatternSpace& space) {
    std::string out;
    size_t done = 0;
    Span match;
    for (size_t from = 0; from <= text.size() && pattern->find(text, from, space, match);) {
      out += std::string_view(text).substr(done, match.begin - done);
      if (match.size() > 0) out += by;  // what matches nothing replaces nothing
      done = match.end;
      from = match.size() > 0 || match.end == text.size()
                 ? match.end + (match.size() == 0)
                 : match.end + first_character(std::string_view(text).substr(match.end)).bytes;
    }
    return out + text.substr(done);
  };
}

Normalizer one(const Component& c, const Table& table) {
  const std::string type = c.type();
  const JsonFields f = c.fields();
  for (const char* name : {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer"})
    if (type == name) need_unicode(fmt::format("{}: {}", c.source, type));
  if (type == "NFC") return normal_form(NormalForm::kNfc, table);
  if (type == "NFD") return normal_form(NormalForm::kNfd, table);
  if (type == "NFKC") return normal_form(NormalForm::kNfkc, table);
  if (type == "NFKD") return normal_form(NormalForm::kNfkd, table);
  if (type == "Lowercase") return [](std::string text, PatternSpace&) { return lower(text); };
  if (type == "StripAccents") return [](std::string text, PatternSpace&) { return without_marks(text, is_mark); };
  if (type == "Strip")
    return [left = f.flag("strip_left", true), right = f.flag("strip_right", true)](std::string text, PatternSpace&) {
      return strip(std::move(text), left, right);
    };
  if (type == "Replace") return replace(c);
  if (type == "Prepend")
    return
        [prefix = f.string("prepend")](std::string text, PatternSpace&) { return text.empty() ? text : prefix + text; };
  if (type == "Precompiled") {
    // Without a map it does nothing.
    if (!f.has("precompiled_charsmap") || f.string("precompiled_charsmap").empty())
      return [](std::string text, PatternSpace&) { return text; };
    need_unicode(fmt::format("{}: {}", c.source, type));
    const auto map = std::make_shared<CharacterMap>(from_base64(f.string("precompiled_charsmap"), c.source), c.source);
    return [map](std::string text, PatternSpace&) { return map->apply(text); };
  }
  if (type == "BertNormalizer") return bert(c, table);
  if (type == "Nmt") return [](std::string text, PatternSpace&) { return nmt(text); };
  if (type == "ByteLevel")
    return [alphabet = ByteAlphabet()](std::string text, PatternSpace&) { return alphabet.to_text(text); };
  c.fail_unknown(kKnownNormalizers);
}

}  // namespace

PatternText read_pattern(const Component& c) {
  const JsonFields pattern = c.fields().object("pattern");
  const bool is_regex = pattern.has("Regex");
  return {pattern.string(is_regex ? "Regex" : "String"), is_regex};
}

std::string with_replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  for (size_t at; !what.empty() && (at = text.find(what)) != text.npos; text.remove_prefix(at + what.size()))
    (out += text.substr(0, at)) += by;
  return out += text;
}

std::vector<Normalizer> read_normalizers(const nlohmann::json& normalizer, const std::string& source,
                                         std::shared_ptr<const CharacterTable> table) {
  std::vector<Normalizer> steps;
  for_each_component({normalizer, source + ": normalizer"}, "normalizers",
                     [&](const Component& c) { steps.push_back(one(c, table)); });
  return steps;
}

}  // namespace weft
