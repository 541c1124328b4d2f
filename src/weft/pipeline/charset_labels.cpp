#include "weft/pipeline/charset_labels.h"

#include <algorithm>
#include <set>

#include "weft/base/ascii.h"
#include "weft/pipeline/charset.h"

namespace weft {
namespace {

// Encoding Standard, section 4.2, with a few labels that pages have beside those (utf8mb4, cp932, cp949, ...). GBK is
// read as gb18030, as the standard does; ISO-8859-8-I as ISO-8859-8. Of those that it calls a replacement (ISO-2022-KR,
// HZ, ...) the labels are not known.
constexpr Charset kCharsets[] = {
    {"utf-8", "", CharsetKind::kUtf8,
     "unicode-1-1-utf-8 utf-8 utf8 unicode11utf8 unicode20utf8 x-unicode20utf8 utf8mb4"},
    {"ibm866", "IBM866", CharsetKind::kSingleByte, "866 cp866 csibm866 ibm866"},
    {"iso-8859-2", "ISO-8859-2", CharsetKind::kSingleByte,
     "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2"},
    {"iso-8859-3", "ISO-8859-3", CharsetKind::kSingleByte,
     "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3"},
    {"iso-8859-4", "ISO-8859-4", CharsetKind::kSingleByte,
     "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4"},
    {"iso-8859-5", "ISO-8859-5", CharsetKind::kSingleByte,
     "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988"},
    {"iso-8859-6", "ISO-8859-6", CharsetKind::kSingleByte,
     "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 "
     "iso-8859-6-e iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987"},
    {"iso-8859-7", "ISO-8859-7", CharsetKind::kSingleByte,
     "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 "
     "iso88597 iso_8859-7 iso_8859-7:1987 sun_eu_greek"},
    {"iso-8859-8", "ISO-8859-8", CharsetKind::kSingleByte,
     "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 "
     "iso88598 iso_8859-8 iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical"},
    {"iso-8859-10", "ISO-8859-10", CharsetKind::kSingleByte,
     "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6"},
    {"iso-8859-13", "ISO-8859-13", CharsetKind::kSingleByte, "iso-8859-13 iso8859-13 iso885913"},
    {"iso-8859-14", "ISO-8859-14", CharsetKind::kSingleByte, "iso-8859-14 iso8859-14 iso885914"},
    {"iso-8859-15", "ISO-8859-15", CharsetKind::kSingleByte,
     "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9"},
    {"iso-8859-16", "ISO-8859-16", CharsetKind::kSingleByte, "iso-8859-16"},
    {"koi8-r", "KOI8-R", CharsetKind::kSingleByte, "cskoi8r koi koi8 koi8-r koi8_r"},
    {"koi8-u", "KOI8-U", CharsetKind::kSingleByte, "koi8-ru koi8-u"},
    {"macintosh", "MACINTOSH", CharsetKind::kSingleByte, "csmacintosh mac macintosh x-mac-roman"},
    {"windows-874", "CP874", CharsetKind::kSingleByte, "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874"},
    {"windows-1250", "CP1250", CharsetKind::kSingleByte, "cp1250 windows-1250 x-cp1250"},
    {"windows-1251", "CP1251", CharsetKind::kSingleByte, "cp1251 windows-1251 x-cp1251"},
    {"windows-1252", "CP1252", CharsetKind::kSingleByte,
     "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 "
     "iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252"},
    {"windows-1253", "CP1253", CharsetKind::kSingleByte, "cp1253 windows-1253 x-cp1253"},
    {"windows-1254", "CP1254", CharsetKind::kSingleByte,
     "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 "
     "iso_8859-9:1989 l5 latin5 windows-1254 x-cp1254"},
    {"windows-1255", "CP1255", CharsetKind::kSingleByte, "cp1255 windows-1255 x-cp1255"},
    {"windows-1256", "CP1256", CharsetKind::kSingleByte, "cp1256 windows-1256 x-cp1256"},
    {"windows-1257", "CP1257", CharsetKind::kSingleByte, "cp1257 windows-1257 x-cp1257"},
    {"windows-1258", "CP1258", CharsetKind::kSingleByte, "cp1258 windows-1258 x-cp1258"},
    {"x-mac-cyrillic", "MAC-UK", CharsetKind::kSingleByte, "x-mac-cyrillic x-mac-ukrainian"},
    {"gb18030", "GB18030", CharsetKind::kMultiByte,
     "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk cp936 ms936 gb18030"},
    {"big5", "BIG5-HKSCS", CharsetKind::kMultiByte, "big5 big5-hkscs cn-big5 csbig5 x-x-big5 cp950"},
    {"euc-jp", "EUC-JP-MS", CharsetKind::kMultiByte, "cseucpkdfmtjapanese euc-jp x-euc-jp"},
    {"iso-2022-jp", "EUC-JP-MS", CharsetKind::kIso2022Jp, "csiso2022jp iso-2022-jp"},
    {"shift_jis", "CP932", CharsetKind::kMultiByte,
     "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis cp932"},
    {"euc-kr", "UHC", CharsetKind::kMultiByte,
     "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 "
     "ksc_5601 windows-949 cp949 ms949 uhc"},
    {"utf-16be", "UTF-16BE", CharsetKind::kUtf16, "utf-16be unicodefffe"},
    {"utf-16le", "UTF-16LE", CharsetKind::kUtf16,
     "utf-16 utf-16le csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff"},
    {"x-user-defined", "", CharsetKind::kUserDefined, "x-user-defined"},
};

}  // namespace

std::span<const Charset> all_charsets() { return kCharsets; }

const Charset* charset_named(std::string_view label) {
  constexpr size_t kLongest = 40;
  const size_t from = label.find_first_not_of(kHtmlSpaces);
  if (from == std::string_view::npos) return nullptr;
  label = label.substr(from, label.find_last_not_of(kHtmlSpaces) - from + 1);
  if (label.size() > kLongest) return nullptr;
  const std::string lower = lower_ascii(label);
  for (const Charset& one : kCharsets)
    if (has_word(one.labels, lower)) return &one;
  return nullptr;
}

// What a page says of its own character set.          HTML, section 13.2.3.2, "prescan a byte stream to determine its
// encoding"

namespace {

constexpr size_t kPrescan = 1 << 16;  // the standard looks at 1024 bytes, and browsers at what they parse later, too

bool is_space(char c) { return kHtmlSpaces.find(c) != std::string_view::npos; }

class Prescan {
 public:
  Prescan(std::string_view text, bool& unknown) : text_(text), unknown_(unknown) {}

  const Charset* run() {
    for (; at_ < text_.size(); ++at_) {
      const std::string_view here = text_.substr(at_, 8);
      if (here.starts_with("<!--")) {
        const size_t end = text_.find("-->", at_ + 2);
        if (end == std::string_view::npos) return nullptr;
        at_ = end + 2;
      } else if (here.size() > 5 && lower_ascii(here.substr(0, 5)) == "<meta" &&
                 (is_space(here[5]) || here[5] == '/')) {
        at_ += 5;
        if (const Charset* found = meta()) return found;
      } else if (here[0] == '<' && is_tag(here.substr(1))) {
        at_ = std::min(text_.find_first_of(" \t\n\f\r>", at_), text_.size());
        while (attribute()) {}
      } else if (here.starts_with("<!") || here.starts_with("</") || here.starts_with("<?")) {
        at_ = std::min(text_.find('>', at_), text_.size());
      }
    }
    return nullptr;
  }

 private:
  static bool is_tag(std::string_view rest) {
    if (rest.starts_with('/')) rest.remove_prefix(1);
    return !rest.empty() && is_ascii_letter(rest[0]);
  }

  // A <meta>, up to its '>'. nullptr: it says nothing that is known.
  const Charset* meta() {
    std::set<std::string> seen;
    bool pragma = false, needs_pragma = false;
    std::string label;
    while (attribute()) {
      if (!seen.insert(name_).second) continue;
      if (name_ == "http-equiv") pragma = value_ == "content-type";
      if (name_ == "content" && label.empty()) {
        label = charset_label_in(value_);
        needs_pragma = !label.empty();
      }
      if (name_ == "charset") label = value_, needs_pragma = false;
    }
    if (label.empty() || (needs_pragma && !pragma)) return nullptr;
    const Charset* found = charset_named(label);
    if (found == nullptr) unknown_ = true;
    return found;
  }

  // The next attribute of the tag, in lower case; false: there is none, and this stands at its '>'.
  bool attribute() {
    while (at_ < text_.size() && (is_space(text_[at_]) || text_[at_] == '/')) ++at_;
    name_.clear(), value_.clear();
    if (at_ >= text_.size() || text_[at_] == '>') return false;
    while (at_ < text_.size() && !is_space(text_[at_]) && text_[at_] != '/' && text_[at_] != '>' &&
           (text_[at_] != '=' || name_.empty()))
      name_ += lower_ascii(text_[at_++]);
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != '=') return true;
    ++at_;
    skip_spaces();
    if (at_ >= text_.size()) return true;
    const char quote = text_[at_];
    const bool quoted = quote == '"' || quote == '\'';
    if (quoted) ++at_;
    const size_t end = std::min(quoted ? text_.find(quote, at_) : text_.find_first_of(" \t\n\f\r>", at_), text_.size());
    value_ = lower_ascii(text_.substr(at_, end - at_));
    at_ = std::min(end + (quoted ? 1 : 0), text_.size());
    return true;
  }
  void skip_spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  std::string_view text_;
  bool& unknown_;
  size_t at_ = 0;
  std::string name_, value_;
};

// encoding="..." of an XML declaration.
const Charset* charset_of_declaration(std::string_view text, bool& unknown) {
  if (!text.starts_with("<?xml")) return nullptr;
  const std::string_view declaration = text.substr(0, text.find('>'));
  const size_t name = declaration.find("encoding");
  const size_t open = name == std::string_view::npos ? name : declaration.find_first_of("\"'", name);
  if (open == std::string_view::npos) return nullptr;
  const std::string_view label = declaration.substr(open + 1, declaration.find(declaration[open], open + 1) - open - 1);
  const Charset* found = charset_named(label);
  unknown = unknown || found == nullptr;
  return found;
}

}  // namespace

std::string charset_label_in(std::string_view content) {
  const std::string lower = lower_ascii(content);
  for (size_t at = 0; (at = lower.find("charset", at)) != std::string::npos;) {
    at = lower.find_first_not_of(kHtmlSpaces, at + 7);
    if (at == std::string::npos) return "";
    if (lower[at] != '=') continue;
    at = lower.find_first_not_of(kHtmlSpaces, at + 1);
    if (at == std::string::npos) return "";
    const char quote = lower[at];
    if (quote != '"' && quote != '\'') return lower.substr(at, lower.find_first_of("; \t\n\f\r", at) - at);
    const size_t end = lower.find(quote, at + 1);
    return end == std::string::npos ? "" : lower.substr(at + 1, end - at - 1);
  }
  return "";
}

const Charset* charset_of_page(std::string_view bytes, bool& unknown) {
  using namespace std::string_view_literals;
  bytes = bytes.substr(0, kPrescan);
  if (bytes.starts_with("<\0?\0x\0"sv)) return charset_named("utf-16le");
  if (bytes.starts_with("\0<\0?\0x"sv)) return charset_named("utf-16be");
  const Charset* found = Prescan(bytes, unknown).run();
  if (found == nullptr) found = charset_of_declaration(bytes, unknown);
  if (found == nullptr) return nullptr;
  if (found->kind == CharsetKind::kUtf16) return charset_named("utf-8");  // it was read byte by byte
  return found->kind == CharsetKind::kUserDefined ? charset_named("windows-1252") : found;
}

}  // namespace weft
