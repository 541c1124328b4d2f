// Parquet files: of several writers (tests/pipeline/parquet), and hostile ones.
#include <random>

#include "apps/program.h"
#include "pipeline/pipeline_support.h"
#include "pipeline/tiny_parquet.h"
#include "places.h"
#include "weft/base/utf8.h"
#include "weft/pipeline/parquet_values.h"
#include "weft/pipeline/row_reader.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::ReadFile;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::TinyParquet;
using Texts = std::vector<std::string>;

fs::path sample(const std::string& name) { return fs::path(testing::kSourceDir) / "tests/pipeline/parquet" / name; }

struct Rows {
  std::vector<Json> rows;
  std::vector<std::string> broken;
  std::string failure;
};
Rows rows_of(const fs::path& file, int64_t max_row_bytes = 1 << 20, ExpansionLimit limit = {}) {
  Rows found;
  const auto reader = read_parquet(file.string(), max_row_bytes, limit);
  int64_t number = 0, end = 0;
  for (Row row; reader->next(row);) {
    EXPECT_GT(row.number, number);
    EXPECT_GE(row.begin, end);
    number = row.number, end = row.end;
    if (row.broken.empty() && utf8_error(row.bytes) != std::string::npos) row.broken = "not UTF-8";
    row.broken.empty() ? found.rows.push_back(parse_json(row.bytes, "row")) : found.broken.push_back(row.broken);
  }
  found.failure = reader->failure();
  return found;
}
Rows rows_in(const std::string& bytes, int64_t max_row_bytes = 1 << 20, ExpansionLimit limit = {}) {
  const TempDir dir;
  spill(dir / "a.parquet", bytes);
  return rows_of(dir / "a.parquet", max_row_bytes, limit);
}
std::string refusal(const std::string& bytes, const std::string& name = "a.parquet", const std::string& more = "") {
  return testing::error_of([&] { ReadFile(name, bytes, more); });
}

std::vector<Json> sample_rows() {
  std::vector<Json> rows;
  std::istringstream lines(slurp(sample("rows.jsonl")));
  for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line));
  return rows;
}
// As from writers without null lists: null and empty values are left out.
Json without_nothing(const Json& value) {
  if (!value.is_structured()) return value;
  Json kept = value.is_array() ? Json::array() : Json::object();
  for (const auto& [key, one] : value.items()) {
    const Json inner = without_nothing(one);
    if (inner.is_null() || (inner.is_array() && inner.empty())) continue;
    value.is_array() ? kept.push_back(inner) : void(kept[key] = inner);
  }
  return kept;
}

TEST(Parquet, FilesOfSeveralWritersGiveTheRowsThatWereWritten) {
  for (const char* name : {"duckdb-v1-snappy", "duckdb-v2-zstd", "arrow-v1-gzip", "arrow-v2-lz4-groups",
                           "arrow-v1-lz4-hadoop", "arrow-delta", "polars-zstd"}) {
    const Rows read = rows_of(sample(name + std::string(".parquet")));
    EXPECT_EQ(read.rows, sample_rows()) << name;
    EXPECT_EQ(read.failure, "") << name;
  }
  std::vector<Json> expected, got;
  for (const Json& row : sample_rows()) expected.push_back(without_nothing(row));
  for (const Json& row : rows_of(sample("parquetjs-repeated.parquet")).rows) got.push_back(without_nothing(row));
  EXPECT_EQ(got, expected);
}

TEST(Parquet, PagesOfAFewValuesAreOneColumn) {
  std::vector<Json> expected = sample_rows();
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i].erase("tags");
    expected[i].erase("messages");
    expected[i]["h"] = double(i) / 2;
    expected[i]["at"] = fmt::format("1970-01-{:02}T00:00:00.005Z", i + 1);
  }
  EXPECT_EQ(rows_of(sample("hyparquet-pages.parquet")).rows, expected);
}

TEST(Parquet, EveryTypeBecomesWhatJsonWritesForIt) {
  const Json expected = Json::parse(R"({"i32": 1, "u32": 3000000000, "u64": 18446744073709551615, "i8": -7,
    "dec9": 12.34, "dec18": -0.05, "dec38": 170141183460469231731687303715.884105, "d": "2024-02-29",
    "ts": "2024-02-29T12:34:56.789000", "tz": "1969-12-31T23:59:59.500000Z", "ts_s": "2001-01-01T00:00:00",
    "ts_ns": "2024-01-01T00:00:00.000000001", "tm": "01:02:03.000004", "uid": "00112233-4455-6677-8899-aabbccddeeff",
    "f": 0.1, "nan": null, "m": {"a": 1, "b": null}, "m7": {"7": "x"}, "st": {"x": {"y": [1, 2]}}, "j": "{\"a\":1}",
    "txt": "ab", "bin": null, "nul": null})");
  const Rows read = rows_of(sample("duckdb-types.parquet"));
  ASSERT_EQ(read.rows.size(), 2u);
  EXPECT_EQ(read.rows[0], read.rows[1]);
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(read.rows[0].at(key), value) << key;
  EXPECT_EQ(read.rows[0].size(), expected.size());
}

TEST(Parquet, RowsAreDocumentsAsThoseOfJsonLinesAre) {
  const std::string more = "meta_keys = [\"id\", \"tags\"]\n";
  const ReadFile lines("a.jsonl", slurp(sample("rows.jsonl")), more);
  const ReadFile rows("a.parquet", slurp(sample("arrow-v2-lz4-groups.parquet")), more);
  EXPECT_EQ(rows.texts(), lines.texts());
  const auto a = testing::documents_of(lines.dir / "out/read"), b = testing::documents_of(rows.dir / "out/read");
  ASSERT_EQ(b.size(), a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(b[i].meta, a[i].meta);
    EXPECT_EQ(b[i].url, a[i].url);
    EXPECT_EQ(b[i].origin.row, a[i].origin.row);
  }
  const std::string bytes = slurp(sample("duckdb-v1-snappy.parquet"));
  EXPECT_EQ(ReadFile("a.of_another_name", bytes, "format = \"parquet\"\n").texts(), lines.texts());
  const std::string talk = "messages_key = \"messages\"\n";
  EXPECT_EQ(ReadFile("a.parquet", bytes, talk).texts(), ReadFile("a.jsonl", slurp(sample("rows.jsonl")), talk).texts());
}

TEST(Parquet, WhatIsNotReadIsRefusedByName) {
  const std::string good = slurp(sample("duckdb-v1-snappy.parquet"));
  EXPECT_SAYS(refusal(slurp(sample("arrow-brotli.parquet"))),
              "column \"id\" is compressed by brotli, which is not read");
  EXPECT_SAYS(refusal(good.substr(0, good.size() - 9)), "is Parquet that cannot be read: it is cut short");
  EXPECT_SAYS(refusal("text"), "a.parquet: is not Parquet: it does not begin with PAR1");
  EXPECT_SAYS(refusal("PARE" + good.substr(4)), "it is encrypted");
  EXPECT_SAYS(refusal("PAR1"), "it is cut short");
  EXPECT_SAYS(refusal(good, "a.csv"), "is Parquet, which is not read: name it .parquet, or set source.format");
  std::string long_footer = good;
  long_footer.replace(good.size() - 8, 4, "\xff\xff\xff\x7f");
  EXPECT_SAYS(refusal(long_footer), "what describes its columns has 2147483647 bytes");
}

TEST(Parquet, ARowGroupThatIsBrokenCostsItsRowsAlone) {
  std::string bytes = slurp(sample("arrow-v2-lz4-groups.parquet"));
  const size_t second = bytes.find("PAR1") + bytes.size() / 3;  // within the rows
  for (size_t i = 0; i < 40; ++i) bytes[second + i] = char(0xff);
  const Rows read = rows_in(bytes);
  EXPECT_FALSE(read.broken.empty());
  EXPECT_LT(read.broken.size(), 3u);
  EXPECT_GE(read.rows.size(), 4u);
  EXPECT_SAYS(read.failure, "row group ");
  EXPECT_SAYS(read.failure, " rows from here on are left out");
  const std::vector<Json> all = sample_rows();
  for (const Json& row : read.rows) EXPECT_EQ(std::count(all.begin(), all.end(), row) > 0, true) << row;
}

TEST(Parquet, ALongRowIsPutAside) {
  const Rows read = rows_of(sample("duckdb-v1-snappy.parquet"), 130);
  EXPECT_GT(read.rows.size(), 5u);
  EXPECT_GT(read.broken.size(), 5u);
  EXPECT_EQ(read.rows.size() + read.broken.size(), sample_rows().size());
  EXPECT_SAYS(read.broken[0], "longer than 130 bytes (read.max_row_mb)");
}

// --- by hand ---

TEST(Parquet, ATinyOneIsRead) {
  EXPECT_EQ(rows_in(TinyParquet().plain({"one", "two"}).bytes()).rows,
            (std::vector<Json>{{{"text", "one"}}, {{"text", "two"}}}));
}

TEST(Parquet, OneValueInEndlessRowsIsABomb) {
  const std::string bytes = TinyParquet().run_of(std::string(1 << 12, 'x'), 1 << 30).bytes();
  const Rows read = rows_in(bytes, 1 << 20, {.max_ratio = 200, .free_bytes = 1 << 20});
  EXPECT_LT(read.rows.size(), 1000u);
  EXPECT_SAYS(read.failure, "is it a bomb? (read.max_ratio)");
}

TEST(Parquet, NamesThatJsonWritesInEachRowAreNoBomb) {
  const int64_t rows = 2000;  // 22 bytes of JSON a row, 1 of them from the file
  const Rows read = rows_in(TinyParquet().run_of("", rows).bytes(), 1 << 20, {.max_ratio = 200, .free_bytes = 1 << 10});
  EXPECT_EQ(read.failure, "");
  EXPECT_EQ(int64_t(read.rows.size()), rows);
}

TEST(Parquet, EndlessElementsInOneRowAreABomb) {
  const std::string few = TinyParquet().list_of("x", 3).bytes();
  EXPECT_EQ(rows_in(few).rows, (std::vector<Json>{{{"text", {"x", "x", "x"}}}}));
  const std::string endless = TinyParquet().list_of("x", int64_t{1} << 40).bytes();
  const Rows read = rows_in(endless, 1 << 10, {.max_ratio = 200, .free_bytes = 1 << 20});
  EXPECT_TRUE(read.rows.empty());
  EXPECT_SAYS(read.failure, "is it a bomb? (read.max_ratio)");
}

TEST(Parquet, TextThatIsNotUtf8IsABrokenRow) {
  const std::string bytes = TinyParquet().plain({"one", "b\xff\"d", "two"}).bytes();
  const ReadFile read("a.parquet", bytes);
  EXPECT_EQ(read.texts(), (Texts{"one", "two"}));
  EXPECT_SAYS(read.why(), "not UTF-8");
  EXPECT_EQ(read.first_broken().at("row"), 2);
}

TEST(Parquet, WhatTheFooterSaysIsNotBelieved) {
  const auto said = [](const TinyParquet& file) { return rows_in(file.bytes()).failure; };
  EXPECT_SAYS(said(TinyParquet().plain({"one"}).rows(5)), "a row for which it has no entry; 4 rows from here on");
  EXPECT_SAYS(said(TinyParquet().plain({"one", "two"}).rows(1)), "has more entries than rows");
  EXPECT_SAYS(said(TinyParquet().plain({"one"}).rows(int64_t{1} << 33).entries(int64_t{1} << 62)), "broken page");
  EXPECT_SAYS(refusal(TinyParquet().plain({"one"}).groups(3).rows(INT64_MAX).bytes()), "a number of rows is");
  EXPECT_SAYS(said(TinyParquet().page("\xff\xff\xff\x7f one")), "its values end too early");
  EXPECT_SAYS(said(TinyParquet().plain({"one"}).sizes(1 << 30, 20)), "broken page: 20 bytes that become 1073741824");
  EXPECT_SAYS(said(TinyParquet().plain({"one"}).sizes(-1, -1)), "broken page: -1 bytes");
  EXPECT_SAYS(said(TinyParquet().plain({"one"}).encoding(2)), "its dictionary is missing");
  EXPECT_SAYS(said(TinyParquet().plain({"one"}).encoding(99)), "a page in encoding 99");
  EXPECT_SAYS(refusal(TinyParquet().plain({"one"}).begin(1 << 20).bytes()), "column \"text\" is not within the file");
  EXPECT_SAYS(refusal(TinyParquet().plain({"one"}).groups(3).rows(-1).bytes()), "broken metadata");
  EXPECT_SAYS(said(TinyParquet().plain({std::string(1000, 'x')}).groups(3)), "columns that lie in each other");
}

TEST(Parquet, BytesThatAreFlippedAreRowsOrAReason) {
  std::mt19937 random(3);
  int readable = 0;
  for (const char* name : {"duckdb-v1-snappy", "arrow-v2-lz4-groups", "arrow-delta", "parquetjs-repeated"}) {
    const std::string good = slurp(sample(name + std::string(".parquet")));
    for (int repeat = 0; repeat < 60; ++repeat) {
      std::string bytes = good;
      for (int i = 0; i < 1 + repeat % 3; ++i) bytes[random() % bytes.size()] = char(random());
      try {
        rows_in(bytes, 1 << 16);
        ++readable;
      } catch (const Error& e) { EXPECT_SAYS(std::string(e.what()), "a.parquet: "); }
    }
  }
  EXPECT_GT(readable, 80);
}

TEST(ParquetValues, RunsAndPacksGiveTheirNumbers) {
  RunReader runs(std::string_view("\x08\x03\x03\x88\xc6\xfa\x00", 7),
                 3);  // four times 3, then 0 to 7 as the format's document has it
  std::vector<uint32_t> got;
  for (int i = 0; i < 12; ++i) got.push_back(runs.next());
  EXPECT_EQ(got, (std::vector<uint32_t>{3, 3, 3, 3, 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_SAYS(testing::error_of([&] { runs.next(); }), "too early");
}

TEST(ParquetValues, DifferencesGiveTheirNumbers) {
  // 7, 5, 3, 1, 2, 3, 4, 5: the second example of the format's document.
  const std::string bytes("\x80\x01\x04\x08\x0e\x03\x02\0\0\0\x00\x3f", 12);
  const std::string whole = bytes.substr(0, 10) + std::string("\xc0\x3f", 2) + std::string(6, '\0') + "rest";
  DeltaReader numbers(whole);
  EXPECT_EQ(numbers.rest(), "rest");
  std::vector<int64_t> got;
  for (int i = 0; i < 8; ++i) got.push_back(numbers.next());
  EXPECT_EQ(got, (std::vector<int64_t>{7, 5, 3, 1, 2, 3, 4, 5}));
  EXPECT_EQ(numbers.rest(), "rest");
}

}  // namespace
}  // namespace weft
