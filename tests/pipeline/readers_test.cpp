// Files to rows and documents: the formats, and what is hostile in them.
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "apps/program.h"
#include "pipeline/pipeline_support.h"
#include "weft/base/json.h"
#include "weft/pipeline/byte_reader.h"
#include "weft/pipeline/document_reader.h"
#include "weft/pipeline/html_text.h"

namespace weft {
namespace {

using testing::config_over;
using testing::Harness;
using testing::ReadFile;
using testing::shared_dir;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using Texts = std::vector<std::string>;

std::string gzip(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = uInt(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = uInt(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}
std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}
std::string xz(const std::string& text) {
  std::string out(text.size() + 1000, '\0');
  size_t size = 0;
  lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                          reinterpret_cast<uint8_t*>(out.data()), &size, out.size());
  out.resize(size);
  return out;
}

TEST(Readers, JsonLinesGiveDocumentsWithTheirPlaces) {
  const ReadFile read("a.jsonl",
                      "{\"text\": \"one\", \"url\": \"http://x\"}\n\n{\"text\": 3}\nno json\n{\"text\": \"two\"}",
                      "meta_keys = [\"url\"]\n");
  EXPECT_EQ(read.texts(), (Texts{"one", "two"}));
  EXPECT_EQ(read.broken(), 2);
  EXPECT_EQ(read.first_broken().at("begin"), 36);
  EXPECT_NE(read.first_broken().at("why").get<std::string>().find("a string"), std::string::npos);
  const auto all = testing::documents_of(read.dir / "out" / "read");
  EXPECT_EQ(all[0].url, "http://x");
  EXPECT_EQ(all[0].meta.at("url"), "http://x");
  EXPECT_EQ(all[1].id.text(), "0.1");
  const std::string file = slurp(read.dir / "a.jsonl");
  EXPECT_EQ(file.substr(size_t(all[1].origin.begin), size_t(all[1].origin.end - all[1].origin.begin)),
            "{\"text\": \"two\"}");
}

// The read stage over files of these names and contents in a folder.
struct ReadFolder {
  explicit ReadFolder(const std::map<std::string, std::string>& files) {
    std::filesystem::create_directories(dir / "in");
    for (const auto& [name, bytes] : files) spill(dir / "in" / name, bytes);
    Harness harness;
    harness.run(config_over(dir / "out", "[\"" + (dir / "in").string() + "\"]", ""));
  }
  Texts texts() const { return testing::texts_of(dir / "out/read"); }
  // Why each input that was not read failed, by file name.
  std::map<std::string, std::string> failures() const {
    std::map<std::string, std::string> found;
    const StageResult read = open_stage(dir / "out/read");
    for (const auto& input : read.manifest.at("inputs"))
      if (input.contains("failure"))
        found[std::filesystem::path(input.at("file").get<std::string>()).filename()] = input.at("failure");
    return found;
  }
  TempDir dir;
};

TEST(Readers, OneFileOfAnotherKindIsPutAsideByName) {
  std::string tar(1024, '\0');
  tar.replace(0, 5, "a.txt").replace(257, 5, "ustar");
  const ReadFolder read({{"a.txt", "one"},
                         {"b.parquet", "PAR1\x15 rows"},
                         {"c.zip", "PK\x03\x04 rows"},
                         {"d.tar.gz", gzip(tar)},
                         {"e.jsonl.lz4", "\x02\x21\x4c\x18 rows"},
                         {"g.csv", "id;txt\n1;no\n"},
                         {"h.csv", "id,text\n1,two\n"},
                         {"i.csv", "text,text\nno,no\n"},
                         {"PAR1.txt", "PAR1 PK ustar BZh is text"}});
  EXPECT_EQ(read.texts(), (Texts{"PAR1 PK ustar BZh is text", "one", "two"}));
  auto failures = read.failures();
  EXPECT_EQ(failures.size(), 6u);
  EXPECT_EQ(failures["b.parquet"], "is Parquet that cannot be read: it is cut short");
  EXPECT_SAYS(failures["c.zip"], "is a zip archive");
  EXPECT_SAYS(failures["d.tar.gz"], "is a tar archive");
  EXPECT_SAYS(failures["e.jsonl.lz4"], "is compressed in lz4's legacy format");
  EXPECT_SAYS(failures["g.csv"], "no column (source.text_key) \"text\": it is \"id;txt\"");
  EXPECT_SAYS(failures["i.csv"], "more than one column \"text\"");
  EXPECT_EQ(open_stage(read.dir / "out/read").manifest.at("broken"), 6);
}

TEST(Readers, ASourceOfWhichNoFileIsReadIsRefusedBeforeAnythingBegins) {
  const std::string said = testing::error_of([] {
    ReadFolder({{"a.csv", "id,txt\n1,x\n"}, {"b.csv", "id,txt\n1,x\n"}});
  });
  EXPECT_SAYS(said, "a.csv: the header has no column (source.text_key) \"text\": it is \"id, txt\"");
  EXPECT_SAYS(said, "none of the 2 files of source \"s\" can be read");
}

TEST(Readers, AnHtmlFileGivesItsText) {
  const std::string page = "<html><script>x()</script><p>A page.</p>\n\n<p>Its end.</p></html>";
  EXPECT_EQ(ReadFile("a.html", page, "").texts(), (Texts{"A page.\n\nIts end."}));
  EXPECT_EQ(ReadFile("a.htm.gz", gzip(page)).texts(), (Texts{"A page.\n\nIts end."}));
  EXPECT_EQ(ReadFile("a.page", page, "format = \"html\"\n").texts(), (Texts{"A page.\n\nIts end."}));
  EXPECT_EQ(ReadFile("a.html", page, "format = \"text\"\n").texts(), (Texts{page}));
  EXPECT_EQ(ReadFile("a.html", "<script>x()</script>").result.counts.dropped.at("no text"), 1);
}

TEST(Readers, TextIsOneDocumentOrPartsBetweenSeparators) {
  EXPECT_EQ(ReadFile("a.txt", "one\n\ntwo").texts(), (Texts{"one\n\ntwo"}));
  EXPECT_EQ(ReadFile("a.txt", "\xef\xbb\xbfone\n\ntwo\n\n\n\nthree\n", "separator = \"\\n\\n\"\n").texts(),
            (Texts{"one", "two", "three\n"}));
  EXPECT_EQ(ReadFile("a.txt", "one<|end|>two<|end|>", "separator = \"<|end|>\"\n").texts(), (Texts{"one", "two"}));
}

TEST(Readers, SeparatorsAreFoundWhateverEndsALine) {
  const std::string paragraphs = "separator = \"\\n\\n\"\n", lines = "separator = \"\\n\"\n";
  EXPECT_EQ(ReadFile("a.txt", "a\r\nb\r\n\r\n\r\n\r\nc\n\nd\r\n", paragraphs).texts(), (Texts{"a\r\nb", "c", "d\r\n"}));
  EXPECT_EQ(ReadFile("a.txt", "a\r\n\r\nb\nc\r\n", lines).texts(), (Texts{"a", "b", "c"}));
  EXPECT_EQ(ReadFile("a.txt", "a\r\n--\r\nb\n--\nc--", "separator = \"\\n--\\n\"\n").texts(), (Texts{"a", "b", "c--"}));
  EXPECT_EQ(ReadFile("a.txt", "a\nb\r\nc", "separator = \"\\r\\n\"\n").texts(), (Texts{"a\nb", "c"}));
  const ReadFile cut("a.txt", "x\r\n" + std::string(2 << 20, 'y') + "\r\n\r\nz",
                     paragraphs + "[read]\nmax_row_mb = 1\n");
  EXPECT_EQ(cut.texts(), (Texts{"z"}));
}

TEST(Readers, CsvFollowsRfc4180) {
  const std::string csv =
      "id,text,url\r\n1,\"a \"\"quoted\"\", text\nof two lines\",http://x\r\n2,plain,\r\n3,too,many,fields\r\n"
      "4,\"not \"closed,u\n5,good,\n6,\"open";
  const ReadFile read("a.csv", csv);
  EXPECT_EQ(read.texts(), (Texts{"a \"quoted\", text\nof two lines", "plain", "good"}));
  EXPECT_EQ(read.broken(), 3);
}

TEST(Readers, ACsvHeaderWithoutOneColumnOfTextIsRefused) {
  const auto refusal = [](const std::string& csv, const std::string& more) -> std::string {
    return testing::error_of<FileError>([&] { ReadFile("a.csv", csv, more); });
  };
  EXPECT_NE(refusal("id,body\n1,one\n", "")
                .find("a.csv: the header has no column (source.text_key) \"text\": it is \"id, body\""),
            std::string::npos);
  EXPECT_NE(refusal("text,id,text\none,1,two\n", "").find("more than one column \"text\""), std::string::npos);
  EXPECT_NE(refusal("text,id,id\none,1,2\n", "meta_keys = [\"id\"]\n").find("more than one column \"id\""),
            std::string::npos);
  EXPECT_EQ(ReadFile("a.csv", "text,id,id\none,1,2\n").texts(), (Texts{"one"}));
  EXPECT_EQ(ReadFile("a.csv", "\"text,id\none,1\n").broken(), 1);
}

TEST(Readers, AQuoteThatIsNotClosedCostsFewRowsOfACsvFile) {
  std::string csv = "id,text\n1,before\n2,\"a slip\n";
  for (int i = 3; i < 100; ++i) csv += fmt::format("{},\"row {}\nof two lines, with \"\"quotes\"\"\"\n", i, i);
  const ReadFile read("a.csv", csv);
  EXPECT_EQ(read.texts().size(), 98u);
  EXPECT_EQ(read.broken(), 1);
  EXPECT_EQ(read.first_broken().at("row"), 3);
  EXPECT_EQ(read.first_broken().at("why"), "text after a closing quote; the quote is in row 3 at byte 19");
  EXPECT_EQ(ReadFile("a.csv", "id,text\n1,one\n2,\"open\n").first_broken().at("why"),
            "a quote that is not closed, or a row that is too long; the quote is in row 3 at byte 16");
}

TEST(Readers, CompressedFilesAreReadByWhatTheyAre) {
  const std::string json = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  for (const std::string& bytes : {gzip(json), zstd(json), xz(json), gzip(json.substr(0, 16)) + gzip(json.substr(16))})
    EXPECT_EQ(ReadFile("a.jsonl.gz", bytes).texts(), (Texts{"one", "two"}));
  EXPECT_EQ(ReadFile("a.jsonl.xz", xz(json) + std::string(8, '\0')).broken(), 0);
  const ReadFile garbage("a.jsonl.gz", gzip(json) + "garbage!");
  EXPECT_EQ(garbage.texts(), (Texts{"one", "two"}));
  EXPECT_EQ(garbage.broken(), 1);
}

TEST(Readers, SkippableFramesOfZstdAreSkipped) {
  const std::string json = "{\"text\": \"one\"}\n", skipped("\x5e\x2a\x4d\x18\3\0\0\0abc", 11);
  const ReadFile read("a.jsonl.zst", skipped + zstd(json) + skipped + zstd(json) + skipped);
  EXPECT_EQ(read.texts(), (Texts{"one", "one"}));
  EXPECT_EQ(read.broken(), 0);
}

TEST(Readers, ATruncatedArchiveKeepsWhatCameBefore) {
  std::string json;
  for (int i = 0; i < 20000; ++i) json += fmt::format("{{\"text\": \"document {} {}\"}}\n", i, i * 7919 % 10007);
  for (const std::string& whole : {gzip(json), zstd(json), xz(json)}) {
    const ReadFile read("a.jsonl.gz", whole.substr(0, whole.size() / 2));
    EXPECT_EQ(read.broken(), 1);
    EXPECT_LT(read.texts().size(), 20000u);
  }
}

TEST(Readers, AFileThatTheSystemCannotReadDoesNotJustEnd) {
  Input input(open_file_reader("/proc/self/mem", {}, nullptr));  // nothing is at address 0: EIO
  EXPECT_EQ(testing::error_of([&] { input.peek(1); }), "/proc/self/mem: cannot be read: Input/output error");
}

TEST(Readers, ABombIsStopped) {
  const ReadFile read("a.txt.gz", gzip(std::string(64 << 20, 'a')), "separator = \"\\n\"\n");
  EXPECT_EQ(read.texts(), Texts{});
  EXPECT_EQ(read.broken(), 1);
  EXPECT_NE(read.first_broken().at("why").get<std::string>().find("bomb"), std::string::npos);
}

TEST(Readers, ALongLineIsPutAside) {
  const std::string lines = "{\"text\": \"one\"}\n" + std::string(3 << 20, 'x') + "\n{\"text\": \"two\"}\n";
  const ReadFile read("a.jsonl", lines, "[read]\nmax_row_mb = 1\n");
  EXPECT_EQ(read.texts(), (Texts{"one", "two"}));
  EXPECT_EQ(read.broken(), 1);
  EXPECT_EQ(read.first_broken().at("bytes").get<std::string>().size(), 1000u);
}

TEST(Readers, BytesThatAreNoTextArePutAsideOrRepaired) {
  const std::string lines = std::string("good\nbad \xff\xfe\nnul \0 byte\n", 23);
  const ReadFile aside("a.txt", lines, "separator = \"\\n\"\n");
  EXPECT_EQ(aside.texts(), (Texts{"good"}));
  EXPECT_EQ(aside.broken(), 2);
  EXPECT_EQ(ReadFile("a.txt", lines, "separator = \"\\n\"\ninvalid_text = \"repair\"\n").texts(),
            (Texts{"good", "bad \ufffd\ufffd", "nul \ufffd byte"}));
}

std::string warc_record(const std::string& type, const std::string& body) {
  return fmt::format(
      "WARC/1.0\r\nWARC-Type: {}\r\nWARC-Target-URI: http://x/\r\nContent-Type: application/http\r\n"
      "Content-Length: {}\r\n\r\n{}\r\n\r\n",
      type, body.size(), body);
}

TEST(Readers, WarcGivesThePagesThatWereAnswered) {
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
  const std::string warc =
      warc_record("request", "GET / HTTP/1.1\r\n\r\n") + warc_record("response", ok + "\r\n<p>A page.</p>") +
      warc_record("response", ok + "Transfer-Encoding: chunked\r\n\r\n6\r\n<p>In \r\n7\r\nchunks.\r\n0\r\n\r\n") +
      warc_record("response", ok + "Content-Encoding: gzip\r\n\r\n" + gzip("<p>Zipped.</p>")) +
      warc_record("response", ok + "Content-Encoding: br\r\n\r\nxyz") +
      warc_record("response", "HTTP/1.1 404 No\r\n\r\n") + "rubbish\n" +
      warc_record("response", ok + "\r\n<p>Last.</p>") + "WARC/1.0\r\nContent-Length: 99\r\n\r\nshort";
  for (const std::string& bytes : {warc, gzip(warc)}) {
    const ReadFile read("a.warc.gz", bytes);
    EXPECT_EQ(read.texts(), (Texts{"A page.", "In chunks.", "Zipped.", "Last."}));
    EXPECT_EQ(read.broken(), 3);
    EXPECT_EQ(testing::documents_of(read.dir / "out" / "read")[0].url, "http://x/");
  }
}

TEST(Readers, AWarcPageIsOneWhateverTheCaseOfItsTypeOrWithoutOne) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  std::string warc = warc_record("response", ok + "Content-Type: Text/HTML; Charset=ISO-8859-1\r\n\r\n<p>caf\xe9</p>") +
                     warc_record("response", ok + "\r\n\r\n \n<!DOCTYPE HTML><p>No type.</p>") +
                     warc_record("response", ok + "\r\n<HTML><p>None either.</p>") +
                     warc_record("response", ok + "\r\nGIF89a");
  std::string upper = warc_record("response", ok + "Content-Type: TEXT/PLAIN\r\n\r\nplain");
  upper.replace(upper.find("application/http"), 16, "Application/HTTP");
  EXPECT_EQ(ReadFile("a.warc", warc + upper).texts(), (Texts{"caf\u00e9", "No type.", "None either.", "plain"}));
}

TEST(Readers, WarcGivesConversionsAndResources) {
  std::string warc =
      warc_record("conversion", "one") + warc_record("resource", "two") + warc_record("metadata", "three");
  for (size_t at = 0; (at = warc.find("application/http")) != std::string::npos;) warc.replace(at, 16, "text/plain");
  EXPECT_EQ(ReadFile("a.warc", warc).texts(), (Texts{"one", "two"}));
}

TEST(Readers, WhatAWarcFileNotesAboutItselfIsNoPage) {
  std::string warc;
  for (const char* target : {"http://x/", "<https://x/>", "FTP://x/a", "metadata://gnu.org/software/wget/warc/wget.log",
                             "urn:X-wpull:log", "dns:x"}) {
    std::string record = warc_record("resource", target);
    record.replace(record.find("http://x/"), 9, target);
    warc += record.replace(record.find("application/http"), 16, "text/plain");
  }
  const ReadFile read("a.warc", warc);
  EXPECT_EQ(read.texts(), (Texts{"http://x/", "<https://x/>", "FTP://x/a"}));
  EXPECT_EQ(read.result.counts.dropped.at("no page's address"), 3);
}

TEST(Readers, PlainTextOfWarcIsConvertedOrPutAside) {
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Type: text/plain";
  const std::string warc = warc_record("response", ok + "; charset=ISO-8859-1\r\n\r\ncaf\xe9") +
                           warc_record("response", ok + "; charset=UTF-16LE\r\n\r\n" + std::string("h\0i\0", 4)) +
                           warc_record("response", ok + "; charset=ISO-8859-1\r\n\r\ncaf\u00e9") +
                           warc_record("response", ok + "; charset=klingon\r\n\r\ncaf\xe9") +
                           warc_record("response", ok + "\r\n\r\ncaf\xe9");
  const ReadFile read("a.warc", warc);
  EXPECT_EQ(read.texts(), (Texts{"caf\u00e9", "hi", "caf\u00e9"}));
  EXPECT_EQ(read.broken(), 2);
  EXPECT_EQ(ReadFile("a.warc", warc, "invalid_text = \"repair\"\n").texts(),
            (Texts{"caf\u00e9", "hi", "caf\u00e9", "caf\ufffd", "caf\ufffd"}));
}

TEST(Readers, RealWarcFilesAreReadAndBrokenOnesSurvived) {
  WEFT_NEEDS_SHARED();
  const TempDir dir;
  const std::string data = (shared_dir() / "data").string();
  ASSERT_EQ(
      std::system(
          ("tar -xzf '" + data + "/conformance/warc/warcio_tests.tar.gz' -C '" + dir.path().string() + "'").c_str()),
      0);
  Harness harness;
  harness.run(config_over(
      dir / "out", "[\"" + dir.path().string() + "/*.warc*\", \"" + data + "/text/web/dolma_sample-0000.warc.gz\"]",
      "format = \"warc\"\n"));
  const auto texts = testing::texts_of(dir / "out" / "read");
  EXPECT_GE(texts.size(), 20u);
  const bool found = std::any_of(texts.begin(), texts.end(), [](const std::string& t) {
    return t.find("may use this domain in examples without prior coordination") != std::string::npos ||
           t.find("This domain is established to be used for illustrative examples") != std::string::npos;
  });
  EXPECT_TRUE(found);
}

TEST(Readers, HtmlLeavesOutWhatIsNoText) {
  EXPECT_EQ(
      html_text("<nav>Home</nav><script>x()</script><h1>Title</h1><p>Some <b>bold</b>\n text &amp; more.</p>"
                "<ul><li>one<li>two</ul><pre>a\n b</pre><div class='sidebar'>ads</div><p><a href=x>only a link</a></p>"
                "<footer>foot</footer>"),
      "Title\n\nSome bold text & more.\n\n  \u2022 one\n  \u2022 two\n\na\n b");
  EXPECT_EQ(html_text("<header><h1>Title</h1></header><p>text</p>"), "Title\n\ntext");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<div>";
  EXPECT_THROW(html_text(deep + "text"), Error);
}

TEST(Readers, AnEmptySourceHidesNoOther) {
  const TempDir dir;
  spill(dir / "empty.txt", "");
  spill(dir / "b.txt", "b");
  Harness harness;
  harness.run(config_over(dir / "out", "[\"" + (dir / "empty.txt").string() + "\"]",
                          "[[source]]\nname = \"b\"\nfiles = [\"" + (dir / "b.txt").string() + "\"]\n"));
  EXPECT_EQ(testing::texts_of(dir / "out" / "read"), (Texts{"b"}));
}

TEST(Readers, FoldersAndPatternsAreReadInTheOrderOfTheirNames) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "in/sub");
  spill(dir / "in/b.txt", "b");
  spill(dir / "in/a.txt", "a");
  spill(dir / "in/sub/c.txt", "c");
  spill(dir / "in/.hidden", "no");
  Harness harness;
  spill(dir / "other.1", "1");
  spill(dir / "other.2", "2");
  harness.run(
      config_over(dir / "out", "[\"" + (dir / "other.[21]").string() + "\", \"" + (dir / "in").string() + "\"]", ""));
  EXPECT_EQ(testing::texts_of(dir / "out" / "read"), (Texts{"1", "2", "a", "b", "c"}));
}

TEST(Readers, EmptyRowsCountSoThatALineHasItsNumber) {
  const TempDir dir;
  spill(dir / "in.jsonl", "\n{\"text\": \"a\"}\n\n\n{\"text\": \"b\"}\n");
  spill(dir / "in.csv", "text\n\nc\n\r\n\nd\n");
  Harness harness;
  std::vector<int64_t> rows;
  for (const std::string name : {"in.jsonl", "in.csv"}) {
    harness.run(config_over(dir / ("out." + name), "[\"" + (dir / name).string() + "\"]", ""));
    for (const Document& d : testing::documents_of(dir / ("out." + name) / "read")) rows.push_back(d.origin.row);
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{2, 5, 3, 6}));
}

}  // namespace
}  // namespace weft
