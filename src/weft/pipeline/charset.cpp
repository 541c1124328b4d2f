#include "weft/pipeline/charset.h"

#include <iconv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <set>

#include "weft/base/error.h"
#include "weft/base/utf8.h"
#include "weft/pipeline/charset_labels.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

constexpr std::string_view kBad = "\ufffd";
constexpr char32_t kNone = 0xffffffff;

class Converter {
 public:
  explicit Converter(const std::string& from) : conversion_(iconv_open("UTF-8", from.c_str())) {
    if (!works())
      throw Error(
          fmt::format("the C library has no converter from {} (iconv); see its packages for gconv modules", from));
  }
  Converter(const Converter&) = delete;
  Converter& operator=(const Converter&) = delete;
  ~Converter() {
    if (works()) iconv_close(conversion_);
  }

  struct Step {
    size_t taken = 0;
    bool bad = false;  // what comes next is no character, or is cut short
    bool cut = false;
  };
  // Appends what `bytes` are, up to those that fit no character.
  Step convert(std::string_view bytes, std::string& text) {
    char* in = const_cast<char*>(bytes.data());  // iconv does not write there
    size_t in_left = bytes.size();
    while (in_left > 0) {
      const bool done = call(&in, &in_left, text);
      if (done || errno == E2BIG) continue;
      return {bytes.size() - in_left, true, errno == EINVAL};
    }
    return {bytes.size()};
  }
  // Appends what it held back, and begins again.
  void finish(std::string& text) { call(nullptr, nullptr, text); }

 private:
  bool works() const { return conversion_ != iconv_t(-1); }
  bool call(char** in, size_t* in_left, std::string& text) {
    std::array<char, 1 << 14> buffer;
    char* out = buffer.data();
    size_t out_left = buffer.size();
    const size_t result = iconv(conversion_, in, in_left, &out, &out_left);
    const int error = errno;
    text.append(buffer.data(), buffer.size() - out_left);
    errno = error;
    return result != size_t(-1);
  }

  iconv_t conversion_;
};

void add_bad(Decoded& d, size_t offset) {
  d.text += kBad;
  ++d.replaced;
  d.first_bad = std::min(d.first_bad, offset);
}

// --- UTF-8 ---

int64_t count_of(std::string_view text, std::string_view what) {
  int64_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size()) ++n;
  return n;
}

void decode_utf8(std::string_view bytes, Decoded& d) {
  std::string copy;
  const std::string_view clean = well_formed(bytes, copy);
  d.first_bad = utf8_error(bytes);
  if (d.first_bad != std::string_view::npos) d.replaced = count_of(clean, kBad) - count_of(bytes, kBad);
  d.text = clean;
}

// Whether there are more characters of several bytes than bytes that fit none: so it is with a few slips in UTF-8. Of
// other character sets, hardly a pair of bytes is a character of UTF-8.
bool is_mostly_utf8(std::string_view bytes) {
  int64_t good = 0, bad = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(utf8_error(bytes.substr(at)), bytes.size() - at) + at;
    good += std::count_if(bytes.begin() + ptrdiff_t(at), bytes.begin() + ptrdiff_t(end),
                          [](char c) { return (uint8_t(c) & 0xc0) == 0xc0; });
    bad += end < bytes.size();
    for (at = end + 1; at < bytes.size() && (uint8_t(bytes[at]) & 0xc0) == 0x80;) ++at;
  }
  return bad == 0 || good >= std::max<int64_t>(bad, 1);
}

// --- one byte, one character ---

struct ByteFix {
  std::string_view charset;
  uint8_t byte;
  char32_t code;
};
// Bytes for which the C library's converters differ from the standard's tables (of 2023).
constexpr ByteFix kByteFixes[] = {{"koi8-u", 0xae, 0x45e},       {"koi8-u", 0xbe, 0x40e},
                                  {"macintosh", 0xc6, 0x2206},   {"macintosh", 0xf0, 0xf8ff},
                                  {"windows-1255", 0xca, 0x5ba}, {"x-mac-cyrillic", 0xff, 0x20ac}};

char32_t code_of(const Charset& charset, uint8_t byte, Converter& converter) {
  for (const ByteFix& fix : kByteFixes)
    if (charset.name == fix.charset && byte == fix.byte) return fix.code;
  std::string text;
  const char c = char(byte);
  const bool fits = !converter.convert({&c, 1}, text).bad;
  converter.finish(text);
  if (fits) return first_character(text).code;
  return byte < 0xa0 && std::string_view(charset.name).starts_with("windows") ? char32_t(byte) : kNone;
}

void decode_bytes(std::string_view bytes, const Charset& charset, Decoded& d) {
  std::array<char32_t, 128> codes;
  if (charset.kind == CharsetKind::kUserDefined) {
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = char32_t(0xf780 + i);
  } else {
    Converter converter(charset.converter);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = code_of(charset, uint8_t(0x80 + i), converter);
  }
  d.text.reserve(bytes.size() + bytes.size() / 2);
  for (size_t at = 0; at < bytes.size(); ++at) {
    const auto byte = uint8_t(bytes[at]);
    if (byte < 0x80)
      d.text += char(byte);
    else if (codes[byte - 0x80] == kNone)
      add_bad(d, at);
    else
      append_character(d.text, codes[byte - 0x80]);
  }
}

// --- several bytes ---

bool is_lead(std::string_view charset, uint8_t byte) {
  if (charset == "shift_jis") return (byte >= 0x81 && byte < 0xa0) || (byte >= 0xe0 && byte < 0xfd);
  if (charset == "euc-jp") return byte == 0x8e || byte == 0x8f || (byte >= 0xa1 && byte < 0xff);
  return byte >= 0x81 && byte < 0xff;
}

// How many bytes one U+FFFD stands for, where they begin no character. A byte of ASCII is never among them but first.
size_t bad_bytes(const Charset& charset, std::string_view bytes) {
  if (charset.kind == CharsetKind::kUtf16) return std::min<size_t>(2, bytes.size());
  const auto is_high = [&](size_t i) { return i < bytes.size() && uint8_t(bytes[i]) >= 0x80; };
  if (!is_lead(charset.name, uint8_t(bytes[0])) || !is_high(1)) return 1;
  return charset.name == std::string_view("euc-jp") && uint8_t(bytes[0]) == 0x8f && is_high(2) ? 3 : 2;
}

struct CodeFix {
  std::string_view charset;
  char32_t from, to;  // kNone: no character
};
constexpr CodeFix kCodeFixes[] = {{"gb18030", 0xe5e5, 0x3000}, {"big5", 0x80, kNone},    {"big5", 0x2022, 0x2027},
                                  {"big5", 0xff64, 0xfe51},    {"big5", 0x203e, 0xaf},   {"big5", 0x223c, 0xff5e},
                                  {"big5", 0x2641, 0x2295},    {"big5", 0x2609, 0x2299}, {"big5", 0xff0f, 0x2215},
                                  {"big5", 0xff3c, 0xfe68},    {"big5", 0xa5, 0xffe5},   {"big5", 0xa2, 0xffe0},
                                  {"big5", 0xa3, 0xffe1},      {"euc-jp", 0xffe4, 0xa6}};

// Converted text with the standard's characters in the place of the C library's where these differ.
class Fixer {
 public:
  explicit Fixer(std::string_view charset) : charset_(charset) {}

  void add(std::string_view text, Decoded& d) {
    if (charset_ != "gb18030" && charset_ != "big5" && charset_ != "euc-jp") return void(d.text += text);
    for (size_t at = 0; at < text.size();) {
      size_t end = at;
      while (end < text.size() && uint8_t(text[end]) < 0x80) ++end;
      d.text += text.substr(at, end - at);
      if (end == text.size()) return;
      const Character c = first_character(text.substr(end));
      const char32_t code = fixed(c.code);
      if (code == c.code)
        d.text += text.substr(end, c.bytes);
      else if (code == kNone)
        d.text += kBad, ++d.replaced;
      else
        append_character(d.text, code);
      at = end + c.bytes;
    }
  }

 private:
  char32_t fixed(char32_t code) {
    for (const CodeFix& fix : kCodeFixes)
      if (fix.charset == charset_ && fix.from == code) return fix.to;
    return charset_ == "euc-jp" ? of_euc_jp(code) : code;
  }
  // Rows 85 to 94 of both planes of EUC-JP are private characters for the C library. Rows 89 to 92 of the first are
  // IBM's, as in Shift_JIS.
  char32_t of_euc_jp(char32_t code) {
    if (code >= 0x80 && code < 0xa0) return kNone;
    if (code < 0xe000 || code >= 0xe000 + 20 * 94) return code;
    const unsigned row = 85 + unsigned(code - 0xe000) / 94, cell = 1 + unsigned(code - 0xe000) % 94;
    if (row < 89 || row > 92) return kNone;
    const unsigned second = row % 2 == 1 ? cell + 0x3f + (cell >= 64) : cell + 0x9e;
    const char pair[] = {char((row - 1) / 2 + 0xc1), char(second)};
    if (!shift_jis_) shift_jis_ = std::make_unique<Converter>("CP932");
    std::string text;
    return shift_jis_->convert({pair, 2}, text).bad ? kNone : first_character(text).code;
  }

  std::string_view charset_;
  std::unique_ptr<Converter> shift_jis_;
};

void decode_sequences(std::string_view bytes, const Charset& charset, Decoded& d) {
  Converter converter(charset.converter);
  Fixer fixer(charset.name);
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    text.clear();
    const Converter::Step step = converter.convert(bytes.substr(at), text);
    converter.finish(text);
    fixer.add(text, d);
    at += step.taken;
    if (!step.bad) continue;
    const auto byte = uint8_t(bytes[at]);
    const bool gb = charset.name == std::string_view("gb18030");
    if (gb && byte == 0x80) {
      d.text += "\u20ac";  // as GBK of Windows has it
      ++at;
    } else if (charset.name == std::string_view("shift_jis") && byte == 0x80) {
      append_character(d.text, 0x80);
      ++at;
    } else {
      add_bad(d, at);
      at += step.cut ? bytes.size() - at : bad_bytes(charset, bytes.substr(at));
    }
  }
}

// ISO-2022-JP as EUC-JP: escape sequences taken out, what they change in high bytes. 0xff stands for what fits nothing.
std::string euc_of_iso_2022(std::string_view bytes) {
  enum { kAscii, kKatakana, kKanji } set = kAscii;
  std::string euc;
  for (size_t at = 0; at < bytes.size();) {
    const std::string_view here = bytes.substr(at, 3);
    const bool ascii = here == "\x1b(B" || here == "\x1b(J", katakana = here == "\x1b(I";
    if (ascii || katakana || here == "\x1b$@" || here == "\x1b$B") {
      set = ascii ? kAscii : katakana ? kKatakana : kKanji;
      at += 3;
      continue;
    }
    const auto high = [](char c) { return uint8_t(c) > 0x20 && uint8_t(c) < 0x7f; };
    const char c = bytes[at++];
    if (uint8_t(c) >= 0x80)
      euc += '\xff';
    else if (set == kAscii || !high(c))
      euc += c;
    else if (set == kKatakana)
      (euc += '\x8e') += char(c | 0x80);
    else if (at < bytes.size() && high(bytes[at]))
      (euc += char(c | 0x80)) += char(bytes[at++] | 0x80);
    else
      euc += '\xff';
  }
  return euc;
}

// --- which one ---

// A byte order mark: its bytes and what it says.
struct Mark {
  size_t size = 0;
  const char* charset = nullptr;
};
Mark mark_of(std::string_view bytes) {
  if (bytes.starts_with("\xef\xbb\xbf")) return {3, "utf-8"};
  if (bytes.starts_with("\xfe\xff")) return {2, "utf-16be"};
  if (bytes.starts_with("\xff\xfe")) return {2, "utf-16le"};
  return {};
}

void take_out_nuls(Decoded& d) {
  const int64_t nuls = std::count(d.text.begin(), d.text.end(), '\0');
  if (nuls == 0) return;
  std::string text;
  for (const char c : d.text) c == '\0' ? void(text += kBad) : void(text += c);
  d.text = std::move(text);
  d.replaced += nuls;
}

Decoded decode(std::string_view bytes, const Charset& charset, Decoded d) {
  d.charset = charset.name;
  switch (charset.kind) {
    case CharsetKind::kUtf8:
      decode_utf8(bytes, d);
      break;
    case CharsetKind::kSingleByte:
    case CharsetKind::kUserDefined:
      decode_bytes(bytes, charset, d);
      break;
    case CharsetKind::kUtf16:
    case CharsetKind::kMultiByte:
      decode_sequences(bytes, charset, d);
      break;
    case CharsetKind::kIso2022Jp:
      decode_sequences(euc_of_iso_2022(bytes), *charset_named("euc-jp"), d);
      break;
  }
  take_out_nuls(d);
  return d;
}

// Decodes by what the header or the page says, if that is known.
Decoded decode_said(std::string_view bytes, const Charset* said, Decoded d) {
  const bool latin1 = said != nullptr && said->name == std::string_view("windows-1252");
  if (latin1 && utf8_error(bytes) == std::string_view::npos) said = charset_named("utf-8");
  return decode(bytes, *said, std::move(d));
}

}  // namespace

Decoded decode_page(std::string_view bytes, std::string_view said) {
  if (const Mark mark = mark_of(bytes); mark.size > 0)
    return decode(bytes.substr(mark.size), *charset_named(mark.charset), {});
  Decoded d;
  const Charset* charset = charset_named(said);
  d.unknown_label = charset == nullptr && !said.empty();
  if (charset == nullptr) charset = charset_of_page(bytes, d.unknown_label);
  if (charset != nullptr) return decode_said(bytes, charset, std::move(d));
  if (is_mostly_utf8(bytes)) return decode(bytes, *charset_named("utf-8"), std::move(d));
  d.guessed = true;
  return decode(bytes, *charset_named("windows-1252"), std::move(d));
}

Decoded decode_text(std::string_view bytes, std::string_view said) {
  if (const Mark mark = mark_of(bytes); mark.size > 0)
    return decode(bytes.substr(mark.size), *charset_named(mark.charset), {});
  Decoded d;
  const Charset* charset = charset_named(said);
  d.unknown_label = charset == nullptr && !said.empty();
  return decode_said(bytes, charset != nullptr ? charset : charset_named("utf-8"), std::move(d));
}

Decoded repair_utf8(std::string_view bytes) { return decode(bytes, *charset_named("utf-8"), {}); }

std::vector<std::string> missing_converters(const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    const iconv_t conversion = iconv_open("UTF-8", name.c_str());
    if (conversion == iconv_t(-1))
      missing.push_back(name);
    else
      iconv_close(conversion);
  }
  return missing;
}

void need_charsets(std::string_view what) {
  std::set<std::string> names;
  for (const Charset& one : all_charsets())
    if (*one.converter != '\0') names.insert(one.converter);
  const std::vector<std::string> missing = missing_converters({names.begin(), names.end()});
  if (missing.empty()) return;
  throw ConfigError(
      fmt::format("{}: the C library lacks its converters (iconv) from {}, without which pages would be lost; install "
                  "its gconv modules: package libc6 of Debian and Ubuntu, or libc-gconv-modules-extra where they are "
                  "in one of their own; glibc-gconv-extra of Fedora",
                  what, fmt::join(missing, ", ")));
}

}  // namespace weft
