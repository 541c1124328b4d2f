// Pages in the character sets that they came in.
#include "weft/pipeline/charset.h"

#include <iconv.h>

#include "apps/program.h"
#include "pipeline/pipeline_support.h"
#include "weft/pipeline/html_text.h"

namespace weft {
namespace {

using testing::config_over;
using testing::Harness;
using testing::spill;
using testing::TempDir;
using Texts = std::vector<std::string>;

std::string encoded(const std::string& text, const char* charset) {
  const iconv_t conversion = iconv_open(charset, "UTF-8");
  std::string from = text, to(4 * text.size() + 16, '\0');
  char *in = from.data(), *out = to.data();
  size_t in_left = from.size(), out_left = to.size();
  EXPECT_EQ(iconv(conversion, &in, &in_left, &out, &out_left), 0u) << charset;
  iconv(conversion, nullptr, nullptr, &out, &out_left);
  iconv_close(conversion);
  to.resize(to.size() - out_left);
  return to;
}

struct Language {
  const char *label, *converter, *begin, *end, *charset;
  bool has_bad_bytes = true;
};
const Language kLanguages[] = {{"gb2312", "GB2312", "中国的网页", "都有编码。", "gb18030"},
                               {"GBK", "GBK", "繁體字和简体字", "都在里面。", "gb18030"},
                               {"Shift_JIS", "CP932", "日本語のページ", "表示とソース①。", "shift_jis"},
                               {"x-sjis", "SJIS", "日本語のページ", "ｶﾀｶﾅもある。", "shift_jis"},
                               {"EUC-JP", "EUC-JP", "日本語のページ", "最後の文。", "euc-jp"},
                               {"euc-kr", "EUC-KR", "한국어 페이지", "마지막 문장.", "euc-kr"},
                               {"ks_c_5601-1987", "UHC", "똠방각하", "펲시콜라", "euc-kr"},
                               {"big5", "BIG5", "臺灣的網頁", "功能很多。", "big5"},
                               {"koi8-r", "KOI8-R", "Русская страница", "и её конец.", "koi8-r", false},
                               {"windows-1251", "CP1251", "Русская страница", "и её конец.", "windows-1251", false},
                               {"iso-8859-1", "CP1252", "“Façade” – naïve", "coûte 5 €…", "windows-1252", false},
                               {"iso-8859-2", "ISO-8859-2", "Příliš žluťoučký", "kůň úpěl.", "iso-8859-2", false},
                               {"windows-1255", "CP1255", "עברית", "סוף", "windows-1255", false},
                               {"tis-620", "TIS-620", "ภาษาไทย", "จบ", "windows-874", false},
                               {"iso-2022-jp", "ISO-2022-JP", "日本語のページ", "最後の文。", "iso-2022-jp"}};

std::string page_of(const std::string& label, const std::string& begin, const std::string& end) {
  const std::string meta = label.empty() ? "" : "<meta charset=\"" + label + "\">";
  return "<!DOCTYPE html><html><head>" + meta + "<title>t</title></head><body><p>" + begin + "</p>\n<p>" + end +
         "</p></body></html>";
}

TEST(Charset, PagesAreReadInTheOneThatTheyDeclare) {
  for (const Language& l : kLanguages) {
    const std::string begin = encoded(l.begin, l.converter), end = encoded(l.end, l.converter);
    const std::string text = std::string(l.begin) + "\n\n" + l.end;
    for (const bool by_header : {false, true}) {
      const Decoded d = decode_page(page_of(by_header ? "" : l.label, begin, end), by_header ? l.label : "");
      EXPECT_EQ(html_text(d.text), text) << l.label;
      EXPECT_EQ(d.charset, l.charset);
      EXPECT_EQ(d.replaced, 0) << l.label;
      EXPECT_FALSE(d.guessed || d.unknown_label) << l.label;
    }
  }
}

TEST(Charset, ABadByteIsOneReplacementAndCostsNothingBehindIt) {
  for (const Language& l : kLanguages) {
    if (!l.has_bad_bytes) continue;
    const std::string begin = encoded(l.begin, l.converter), end = encoded(l.end, l.converter);
    const Decoded d = decode_page(page_of(l.label, begin + "\xff", end), "");
    EXPECT_EQ(html_text(d.text), std::string(l.begin) + "\ufffd\n\n" + l.end) << l.label;
    EXPECT_EQ(d.replaced, 1) << l.label;
  }
  const Decoded d = decode_page(page_of("utf-8", "caf\u00e9\xe9", "\u65e5\u672c \xe6\x97 \u8a9e"), "");
  EXPECT_EQ(html_text(d.text), "caf\u00e9\ufffd\n\n\u65e5\u672c \ufffd \u8a9e");
  EXPECT_EQ(d.replaced, 2);
}

// Encoding Standard, section 12 and others: a byte of ASCII is never taken for the second half of what is broken.
TEST(Charset, ABrokenPairLeavesTheAsciiBehindIt) {
  for (const char* label : {"gbk", "big5", "euc-kr", "euc-jp", "shift_jis"}) {
    const Decoded d = decode_page("a\x81<p>b\xe1", label);
    EXPECT_EQ(d.text, "a\ufffd<p>b\ufffd") << label;
  }
  EXPECT_EQ(decode_page("\x81\x30\x81 x", "gb18030").text, "\ufffd0\ufffd x");
  EXPECT_EQ(decode_page("\x8f\xa1\xffz", "euc-jp").text, "\ufffdz");
  EXPECT_EQ(decode_page(std::string("a\0\0\xd8z\0!", 7), "utf-16le").text, "a\ufffdz\ufffd");
}

TEST(Charset, TheOrderIsMarkHeaderPageGuess) {
  const auto charset = [](const std::string& bytes, const std::string& said = "") {
    return decode_page(bytes, said).charset;
  };
  const std::string meta = "<meta charset=koi8-r>";
  EXPECT_EQ(charset("\xef\xbb\xbf" + meta + "\xff", "gbk"), "utf-8");
  EXPECT_EQ(decode_page(std::string("\xff\xfe<\0p\0>\0\xe9\0", 10), "gbk").text, "<p>\u00e9");
  EXPECT_EQ(charset(meta + "\xd7", "windows-1251"), "windows-1251");
  EXPECT_EQ(charset(meta + "\xd7"), "koi8-r");
  EXPECT_EQ(charset("<p>\xd7"), "windows-1252");
  EXPECT_EQ(charset("<p>\u00e9"), "utf-8");
  EXPECT_TRUE(decode_page("<p>\xd7", "").guessed);
  EXPECT_FALSE(decode_page("<p>\xd7", "latin1").guessed);
  // Servers declare ISO-8859-1 unasked; what is UTF-8 is that.
  EXPECT_EQ(charset("<p>\u00e9", "iso-8859-1"), "utf-8");
}

TEST(Charset, ASlipInUtf8WithoutADeclarationIsASlip) {
  const Decoded d = decode_page("<p>Fa\u00e7ade \u2013 na\u00efve \xe9</p>", "");
  EXPECT_EQ(d.text, "<p>Fa\u00e7ade \u2013 na\u00efve \ufffd</p>");
  EXPECT_EQ(decode_page("<p>Fa\xe7"
                        "ade \x96 na\xefve</p>",
                        "")
                .text,
            "<p>Fa\u00e7ade \u2013 na\u00efve</p>");
}

TEST(Charset, AnUnknownLabelIsCountedAndAnotherSourceAsked) {
  const Decoded meta = decode_page("<meta charset=koi8-r>\xd7", "klingon");
  EXPECT_TRUE(meta.unknown_label);
  EXPECT_EQ(meta.charset, "koi8-r");
  const Decoded guess = decode_page("<meta charset=klingon>\xe9", "");
  EXPECT_TRUE(guess.unknown_label && guess.guessed);
  EXPECT_EQ(guess.text, "<meta charset=klingon>\u00e9");
}

// The cases of HTML's "prescan a byte stream to determine its encoding".
TEST(Charset, ThePageIsAskedAsBrowsersDo) {
  const auto charset = [](const std::string& html) { return decode_page(html + "\xe9", "").charset; };
  for (const char* html :
       {"<html><meta http-equiv='Content-Type' content='text/html; charset=big5'>",
        "<META CONTENT=\"text/html;charset = 'BIG5' ; x\" HTTP-EQUIV=content-type />", "<meta\tcharset\n=\r\"big5\">",
        "<!-- <meta charset=koi8-r> --><meta charset=big5>", "<!--><meta charset=big5>",
        "<p title='<meta charset=koi8-r>'><meta charset=big5>",
        "<meta name=x content='charset=koi8-r'><meta charset=big5>", "<meta charset=klingon><meta charset=big5>",
        "<?xml version='1.0' encoding='big5'?><html>", "</p <meta charset=koi8-r><meta charset=big5>",
        "<meta/charset=big5 />", "<meta charset=big5 charset=koi8-r>"})
    EXPECT_EQ(charset(html), "big5") << html;
  EXPECT_EQ(charset("<meta charset=utf-16>"), "utf-8");
  EXPECT_EQ(charset("<meta charset=x-user-defined>"), "windows-1252");
  EXPECT_EQ(charset("<title>" + std::string(5000, 'x') + "</title><meta charset=big5>"), "big5");  // as browsers do
  for (const char* html : {"<meta charset=big5", "<!-- <meta charset=big5>", "<meta content='charset=big5'>",
                           "<metacharset=big5>", "<meta charset>", "<"})
    EXPECT_EQ(charset(html), "windows-1252") << html;
}

// Where glibc's tables are others than the standard's.
TEST(Charset, CharactersAreThoseOfTheStandard) {
  EXPECT_EQ(decode_page("\x80\x81\x9d", "ascii").text, "\u20ac\u0081\u009d");
  EXPECT_EQ(decode_page("\x80\xa3\xa0", "gb2312").text, "\u20ac\u3000");
  EXPECT_EQ(decode_page("\xa1\xe3\xa2\x44", "big5").text, "\uff5e\uffe5");
  EXPECT_EQ(decode_page("\x81\x60\x87\x40\xb1", "shift_jis").text, "\uff5e\u2460\uff71");
  EXPECT_EQ(decode_page("\xa1\xc1\xad\xa1\xfc\xe2\x8e\xb1\x8f\xb0\xa1", "euc-jp").text,
            "\uff5e\u2460\u9ad9\uff71\u4e02");
  EXPECT_EQ(decode_page("\x8f\xa2\xc3", "euc-jp").text, "\u00a6");
  // Private for glibc, nothing for the standard.
  EXPECT_EQ(decode_page("\xf5\xa1\x8f\xf5\xa1\x85", "euc-jp").replaced, 3);
  EXPECT_EQ(decode_page("\xae", "koi8-u").text, "\u045e");
  EXPECT_EQ(decode_page("\x80\xff", "x-user-defined").text, "\uf780\uf7ff");
}

TEST(Charset, WhatTheCLibraryLacksIsNamed) {
  EXPECT_EQ(missing_converters({"GB18030", "KLINGON", "CP932"}), (Texts{"KLINGON"}));
  need_charsets("a.warc");
}

std::string response(const std::string& type, const std::string& body) {
  const std::string http = "HTTP/1.1 200 OK\r\nContent-Type: " + type + "\r\n\r\n" + body;
  return fmt::format(
      "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://x/\r\nContent-Type: application/http\r\n"
      "Content-Length: {}\r\n\r\n{}\r\n\r\n",
      http.size(), http);
}

TEST(Charset, PagesOfAWarcFileAreCountedByWhatWasPutInTheirPlaces) {
  const std::string sjis = encoded("日本語", "CP932");
  const std::string warc = response("text/html; charset=Shift_JIS", "<p>" + sjis + "\xff" + sjis) +
                           response("text/html", page_of("gb2312", encoded("中国", "GBK"), "x")) +
                           response("text/html; charset=klingon", "<p>caf\xe9") +
                           response("text/plain; charset=euc-kr", encoded("한국어", "EUC-KR")) +
                           response("text/html", "<p>a" + std::string(1, '\0') + "b");
  const TempDir dir;
  spill(dir / "a.warc", warc);
  const std::string files = "[\"" + (dir / "a.warc").string() + "\"]";
  Harness harness;
  harness.run(config_over(dir / "repaired", files, "invalid_text = \"repair\"\n"));
  const auto documents = testing::documents_of(dir / "repaired/read");
  ASSERT_EQ(documents.size(), 5u);
  EXPECT_EQ(documents[0].text, "日本語\ufffd日本語");
  EXPECT_EQ(documents[0].meta, (nlohmann::json{{"charset", "shift_jis"}, {"repaired", 1}}));
  EXPECT_EQ(documents[1].text, "中国\n\nx");
  EXPECT_EQ(documents[2].text, "caf\u00e9");
  EXPECT_EQ(documents[3].text, "한국어");
  EXPECT_EQ(documents[4].text, "a\ufffdb");
  EXPECT_EQ(
      open_stage(dir / "repaired/read").counts.changed,
      (std::map<std::string, int64_t>{{"read.guessed_charset", 1}, {"read.repaired", 2}, {"read.unknown_charset", 1}}));
  harness.run(config_over(dir / "aside", files, ""));
  EXPECT_EQ(testing::texts_of(dir / "aside/read"), (Texts{"中国\n\nx", "caf\u00e9", "한국어"}));
  const std::string broken = testing::slurp(dir / "aside/read/broken-00000.jsonl");
  EXPECT_SAYS(broken, "1 place is not shift_jis in the page, the first at its byte 9 (source.invalid_text)");
  EXPECT_SAYS(broken, "not utf-8");
}

TEST(Charset, AnHtmlFilesMarkWinsOverWhatItSays) {
  const TempDir dir;
  spill(dir / "a.html", "\xef\xbb\xbf<meta charset=gb2312><p>caf\u00e9");
  spill(dir / "b.html", page_of("gb2312", encoded("中国", "GBK"), encoded("网页", "GBK")));
  Harness harness;
  harness.run(config_over(dir / "out", "[\"" + (dir / "*.html").string() + "\"]", ""));
  EXPECT_EQ(testing::texts_of(dir / "out/read"), (Texts{"caf\u00e9", "中国\n\n网页"}));
}

}  // namespace
}  // namespace weft
