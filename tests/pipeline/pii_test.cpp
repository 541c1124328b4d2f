// How well personal data is found: on lines in which it is marked, [[kind:data]], among what only looks like it. Rules
// were made with tune.txt; held.txt says how they do on what they were not made for. fresh.txt is by somebody who had
// not seen the rules; they have been mended by it since (docs/formats/pipeline.md has the figures from before).
#include "weft/pipeline/pii.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "pipeline/pipeline_support.h"
#include "weft/pipeline/rule.h"

namespace weft {
namespace {

struct Hit {
  std::string kind;
  size_t begin, end;
  auto operator<=>(const Hit&) const = default;
};
struct Line {
  std::string text;
  std::set<Hit> marked;
};

// A ~ in marked data only keeps programs that look for keys in files from finding these.
Line read_line(std::string_view line) {
  Line out;
  while (!line.empty()) {
    const size_t colon = line.find(':'), close = line.find("]]");
    const auto is_kind = [&](const PiiKind& k) { return line.starts_with("[[") && line.substr(2, colon - 2) == k.key; };
    if (std::any_of(pii_kinds().begin(), pii_kinds().end(), is_kind)) {
      std::string data(line.substr(colon + 1, close - colon - 1));
      std::erase(data, '~');
      out.marked.insert({std::string(line.substr(2, colon - 2)), out.text.size(), out.text.size() + data.size()});
      out.text += data;
      line.remove_prefix(close + 2);
    } else {
      out.text += line[0];
      line.remove_prefix(1);
    }
  }
  return out;
}

std::set<Hit> found_in(std::string text) {
  std::set<Hit> found;
  for (const PiiKind& kind : pii_kinds())
    for (auto f = kind.find(text, 0); f.begin != std::string::npos; f = kind.find(text, f.end)) {
      found.insert({std::string(kind.key), f.begin, f.end});
      std::fill(text.begin() + ptrdiff_t(f.begin), text.begin() + ptrdiff_t(f.end), '|');
    }
  return found;
}

struct Score {
  int right = 0, wrong = 0, missed = 0;
  double precision() const { return right + wrong == 0 ? 1 : double(right) / (right + wrong); }
  double recall() const { return right + missed == 0 ? 1 : double(right) / (right + missed); }
};

void expect_found(const std::string& file, double floor) {
  std::map<std::string, Score> scores;
  std::string rest = testing::slurp(std::filesystem::path(testing::kSourceDir) / "tests/pipeline/pii" / file);
  ASSERT_FALSE(rest.empty());
  while (!rest.empty()) {
    const Line line = read_line(rest.substr(0, rest.find('\n')));
    rest.erase(0, std::min(rest.size(), rest.find('\n') + 1));
    const std::set<Hit> found = found_in(line.text);
    for (const Hit& h : line.marked) found.count(h) ? ++scores[h.kind].right : ++scores[h.kind].missed;
    for (const Hit& h : found)
      if (line.marked.count(h) == 0) ++scores[h.kind].wrong;
  }
  for (const PiiKind& kind : pii_kinds()) {
    const Score s = scores[std::string(kind.key)];
    fmt::print("{} {:20} {:2} right, {} wrong, {} missed: precision {:.2f}, recall {:.2f}\n", file, kind.key, s.right,
               s.wrong, s.missed, s.precision(), s.recall());
    EXPECT_GE(s.right + s.missed, 2) << kind.key;
    EXPECT_GE(s.precision(), floor) << kind.key;
    EXPECT_GE(s.recall(), floor) << kind.key;
  }
}

TEST(Pii, IsFoundInTheLinesThatItsRulesWereMadeWith) { expect_found("tune.txt", 1.0); }
TEST(Pii, IsFoundInOtherLines) { expect_found("held.txt", 0.8); }
TEST(Pii, IsFoundInLinesOfSomebodyElse) { expect_found("fresh.txt", 0.8); }

TEST(Pii, KeysAreFoundInLinearTime) {
  std::string hostile;
  for (const char* unit : {" sk-", "-eyJ", ".eyJaaaaaaaaaa", "-----BEGIN ", "-----BEGIN A PRIVATE KEY-----\n", "AKIA",
                           " ghp_a1", "SG.", "4 4 4 ", "version 1.", "(2"})
    for (size_t n = 0; n < (1 << 17); n += std::string_view(unit).size()) hostile += unit;
  std::string text = hostile;
  for (const PiiKind& kind : pii_kinds()) mask_pii(text, kind);
  EXPECT_LE(text.size(), hostile.size() + 64);
}

TEST(Pii, ANumberUnderAKeyThatIsPersonalDataStaysTheNumber) {
  Document d;
  const nlohmann::json scores = {{"ann@example.org", 7}, {"bob@example.org", 2125550187}};
  d.conversation = nlohmann::json{{"messages", {{{"role", "user"}, {"scores", scores}}}}}.dump();
  std::map<std::string, int64_t> changes;
  make_pii_rule({})->judge(d, changes);
  const auto masked = nlohmann::json::parse(d.conversation)["messages"][0]["scores"];
  EXPECT_EQ(masked["ann@example.org"], 7);
  EXPECT_EQ(masked["bob@example.org"], "|||PHONE_NUMBER|||");
  EXPECT_EQ(changes, (std::map<std::string, int64_t>{{"pii.phones", 1}}));
}

TEST(Pii, DeepArgumentsOfAFunctionAreMaskedAsAText) {
  std::string deep;
  for (int i = 0; i < 200'000; ++i) deep += "[\"]]]\",";
  Document d;
  d.conversation = nlohmann::json{{"messages", {{{"role", "user"}, {"content", deep + " a@example.org"}}}}}.dump();
  std::map<std::string, int64_t> changes;
  make_pii_rule({})->judge(d, changes);
  EXPECT_EQ(changes.at("pii.emails"), 1);
}

}  // namespace
}  // namespace weft
