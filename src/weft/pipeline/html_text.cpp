#include "weft/pipeline/html_text.h"

#include <libxml/HTMLparser.h>
#include <libxml/encoding.h>
#include <libxml/parserInternals.h>

#include <algorithm>
#include <climits>
#include <initializer_list>
#include <vector>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_never_text(std::string_view tag) {
  return is_one_of(tag, {"head",   "script", "style", "noscript", "template", "nav",    "footer", "aside",   "form",
                         "button", "select", "svg",   "iframe",   "object",   "canvas", "audio",  "video",   "dialog",
                         "map",    "menu",   "input", "textarea", "option",   "applet", "embed",  "frameset"});
}
bool is_boilerplate_name(std::string_view word) {
  return is_one_of(word,
                   {"nav", "navbar", "navigation", "menu", "sidebar", "footer", "breadcrumb", "breadcrumbs", "cookie",
                    "cookies", "banner", "contentinfo", "search", "complementary", "social", "share", "hidden"});
}

enum class Block { kInline, kLine, kParagraph };
Block block_of(std::string_view tag) {
  if (is_one_of(tag,
                {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "blockquote", "pre", "table", "figure"}))
    return Block::kParagraph;
  if (is_one_of(tag, {"div", "li", "br", "tr", "section", "article", "main", "header", "body", "dt", "dd", "address",
                      "hr", "caption", "figcaption", "center", "details", "summary", "fieldset"}))
    return Block::kLine;
  return Block::kInline;
}

// The lines of a page, as its elements come.
class Text {
 public:
  void open(std::string_view tag, bool skipped) {
    Element e{.block = block_of(tag), .skipped = skipped};
    if (e.block != Block::kInline) end_block(e.block);
    e.list = tag == "ul" || tag == "ol";
    e.link = tag == "a";
    e.verbatim = tag == "pre";
    lists_ += e.list, links_ += e.link, verbatim_ += e.verbatim, skipped_ += e.skipped;
    if (tag == "li") item_ = true;
    if ((tag == "td" || tag == "th") && !block_.empty()) block_ += ' ';
    open_.push_back(e);
  }
  void close() {
    if (open_.empty()) return;
    const Element e = open_.back();
    open_.pop_back();
    if (e.block != Block::kInline) end_block(e.block);
    lists_ -= e.list, links_ -= e.link, verbatim_ -= e.verbatim, skipped_ -= e.skipped;
  }
  void add(std::string_view text) {
    if (skipped_ > 0) return;
    const size_t before = block_.size();
    if (verbatim_ > 0) {
      block_ += text;
    } else {
      for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
        if (!space)
          block_ += c;
        else if (!block_.empty() && block_.back() != ' ')
          block_ += ' ';
      }
    }
    if (links_ > 0) link_bytes_ += block_.size() - before;
  }
  std::string finish() {
    end_block(Block::kParagraph);
    return std::move(text_);
  }
  size_t depth() const { return open_.size(); }

 private:
  struct Element {
    Block block = Block::kInline;
    bool skipped = false, list = false, link = false, verbatim = false;
  };

  void end_block(Block kind) {
    while (!block_.empty() && (block_.back() == ' ' || block_.back() == '\n')) block_.pop_back();
    const bool mostly_links = 2 * link_bytes_ > block_.size();
    if (!block_.empty() && !mostly_links) {
      if (!text_.empty()) text_ += gap_ == Block::kParagraph ? "\n\n" : "\n";
      if (item_) text_ += std::string(2 * size_t(std::max(lists_, 1)), ' ') + "\u2022 ";
      text_ += block_;
      gap_ = Block::kLine;
    }
    if (!block_.empty()) item_ = false;
    gap_ = std::max(gap_, kind);
    block_.clear();
    link_bytes_ = 0;
  }

  std::vector<Element> open_;
  std::string text_, block_;
  Block gap_ = Block::kLine;
  size_t link_bytes_ = 0;
  int lists_ = 0, links_ = 0, verbatim_ = 0, skipped_ = 0;
  bool item_ = false;
};

// Some pages put all of their text into a <body class="sidebar">.
bool may_be_skipped(std::string_view tag) { return !is_one_of(tag, {"html", "body", "main", "article"}); }

constexpr size_t kDeepest = 2000;

struct Page {
  Text text;
  htmlParserCtxtPtr parser = nullptr;
  bool too_deep = false;
};

std::string_view view(const xmlChar* s) { return reinterpret_cast<const char*>(s); }

void on_start(void* user, const xmlChar* name, const xmlChar** attributes) {
  Page& page = *static_cast<Page*>(user);
  const std::string_view tag = view(name);
  bool skipped = is_never_text(tag);
  for (const xmlChar** a = attributes; a != nullptr && *a != nullptr && !skipped; a += 2) {
    const std::string_view key = view(a[0]);
    if (key == "hidden" && may_be_skipped(tag)) skipped = true;
    if (a[1] != nullptr && is_one_of(key, {"class", "id", "role"}) && may_be_skipped(tag)) {
      const auto words = words_of(view(a[1]));
      skipped = std::any_of(words.begin(), words.end(), is_boilerplate_name);
    }
  }
  page.text.open(tag, skipped);
  if (page.text.depth() > kDeepest) {
    page.too_deep = true;
    xmlStopParser(page.parser);
  }
}
void on_end(void* user, const xmlChar*) { static_cast<Page*>(user)->text.close(); }
void on_text(void* user, const xmlChar* text, int size) {
  static_cast<Page*>(user)->text.add({reinterpret_cast<const char*>(text), size_t(size)});
}
void on_message(void*, const char*, ...) {}

}  // namespace

void need_html(std::string_view) {}

std::string html_text(std::string_view html) {
  if (html.empty()) return "";
  if (html.size() > INT_MAX) throw Error("a page of more than 2 GiB");
  std::string copy, clean(well_formed(html, copy));
  std::replace(clean.begin(), clean.end(), '\0', ' ');  // the parser would stop there
  Page page;
  page.parser = htmlCreateMemoryParserCtxt(clean.data(), int(clean.size()));
  if (page.parser == nullptr) throw std::bad_alloc();
  htmlSAXHandler events{};
  events.startElement = on_start;
  events.endElement = on_end;
  events.characters = events.ignorableWhitespace = events.cdataBlock = on_text;
  events.error = events.warning = events.fatalError = on_message;
  *page.parser->sax = events;
  page.parser->userData = &page;
  xmlSwitchEncoding(page.parser, XML_CHAR_ENCODING_UTF8);
  htmlCtxtUseOptions(page.parser, HTML_PARSE_RECOVER | HTML_PARSE_NONET | HTML_PARSE_IGNORE_ENC);
  htmlParseDocument(page.parser);
  page.parser->userData = page.parser;
  htmlFreeParserCtxt(page.parser);
  if (page.too_deep) throw Error(fmt::format("a page whose elements are nested more than {} deep", kDeepest));
  return std::string(well_formed(page.text.finish(), copy));
}

}  // namespace weft
