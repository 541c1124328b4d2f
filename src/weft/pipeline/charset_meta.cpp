// What a page says of its own character set.          HTML, section 13.2.3.2, "prescan a byte stream to determine its
// encoding"
#include <algorithm>
#include <cctype>
#include <set>

#include "weft/base/ascii.h"
#include "weft/pipeline/charset.h"
#include "weft/pipeline/charset_labels.h"

namespace weft {
namespace {

constexpr size_t kPrescan = 1 << 16;  // the standard looks at 1024 bytes, and browsers at what they parse later, too

bool is_space(char c) { return kHtmlSpaces.find(c) != std::string_view::npos; }
bool is_letter(char c) { return lower_ascii(c) >= 'a' && lower_ascii(c) <= 'z'; }

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
    return !rest.empty() && is_letter(rest[0]);
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
