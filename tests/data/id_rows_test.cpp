#include "weft/data/id_rows.h"

#include <fstream>
#include <set>

#include "data/data_support.h"
#include "weft/base/error.h"
#include "weft/data/row_order.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TempDir;

constexpr int64_t kRowVocabulary = 20, kRowTokens = 8;

std::string row_of(const std::string& prompt, const std::string& chosen, const std::string& rejected) {
  return fmt::format(R"({{"prompt": {}, "chosen": {}, "rejected": {}}})", prompt, chosen, rejected) + "\n";
}
const std::string kGood = row_of("[1, 2, 3]", "[4, 5]", "[6]");

class Rows : public ::testing::Test {
 protected:
  IdRows open(const std::string& text) {
    const auto file = dir_ / "pairs.jsonl";
    std::ofstream(file) << text;
    return IdRows(
        {.file = file, .completions = {"chosen", "rejected"}, .vocab_size = kRowVocabulary, .seq_length = kRowTokens});
  }
  RowOrder order_of(const std::string& text, int64_t rows_of_step, bool shuffle, bool scores_ends = false) {
    return RowOrder(open(text), {.rows_of_step = rows_of_step,
                                 .seq_length = kRowTokens,
                                 .scores_ends = scores_ends,
                                 .seed = 5,
                                 .shuffle = shuffle});
  }
  TempDir dir_;
};

TEST_F(Rows, HaveAPromptAndTwoCompletions) {
  const IdRows rows = open(kGood + "\n" + row_of("[7]", "[8, 9, 10, 11, 12, 13, 14]", "[19]"));
  ASSERT_EQ(rows.size(), 2);
  const auto ids = [](std::span<const int32_t> part) { return std::vector(part.begin(), part.end()); };
  EXPECT_EQ(ids(rows.prompt(0)), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(ids(rows.completion(0, 0)), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(ids(rows.completion(0, 1)), (std::vector<int32_t>{6}));
  EXPECT_EQ(ids(rows.prompt(1)), (std::vector<int32_t>{7}));
  EXPECT_EQ(rows.completion(1, 0).size(), 7u);
  EXPECT_EQ(ids(rows.completion(1, 1)), (std::vector<int32_t>{19}));
}

TEST_F(Rows, BadOnesAreRefusedByFileLineAndField) {
  const auto refused = [&](const std::string& row, const std::vector<std::string>& parts) {
    const std::string error = error_of([&] { open(kGood + row); });
    EXPECT_SAYS(error, "pairs.jsonl: line 2");
    for (const std::string& part : parts) EXPECT_SAYS(error, part);
  };
  refused("{\"prompt\": [1], \"chosen\": [2]}\n", {"\"rejected\"", "missing"});
  refused("{\"chosen\": [1], \"rejected\": [2]}\n", {"\"prompt\"", "missing"});
  refused(row_of("[1]", "[]", "[2]"), {"\"chosen\": is empty", "at least one token"});
  refused(row_of("[]", "[1]", "[2]"), {"\"prompt\": is empty"});
  refused(row_of("[1]", "[]", "[2]") + kGood + row_of("[]", "[1]", "[2]"),
          {"\"chosen\": is empty", "; 2 rows of the file are empty in some part"});
  refused(row_of("[1]", "[2]", "[3, 20]"), {"\"rejected\": 20 is not in the vocabulary of 20", "another model"});
  refused(row_of("[1]", "[-1]", "[3]"), {"\"chosen\": -1 is not in the vocabulary"});
  refused(row_of("[1]", "[18446744073709551615]", "[3]"), {"is not in the vocabulary"});
  refused(row_of("[1]", "[1.0]", "[3]"), {"1.0 is no token id"});
  refused(row_of("[1]", "[true]", "[3]"), {"true is no token id"});
  refused(row_of("\"hello\"", "[1]", "[3]"), {"\"prompt\": expected a list of token ids, got \"hello\""});
  refused(row_of("[1, 2, 3]", "[1, 2, 3, 4, 5, 6]", "[1]"), {"\"chosen\"", "9 tokens", "train.seq_length = 8"});
  refused(row_of("[1, 2, 3]", "[1, 2, 3, 4, 5, 6]", "[1, 2, 3, 4, 5, 6, 7]"),
          {"2 completions of the file are too long", "up to 10"});
  refused("[1, 2]\n", {});
  refused("{\"prompt\": [1\n", {});
  EXPECT_SAYS(error_of([&] { open("\n"); }), "pairs.jsonl: has no rows");
  EXPECT_SAYS(error_of([&] { open("[" + kGood + "]"); }), "one JSON array");
  EXPECT_SAYS(error_of([&] { order_of(kGood + kGood, 3, false); }), "pairs.jsonl: 2 rows, fewer than a step takes");
}

struct ReadRow {
  std::vector<int32_t> ids = std::vector<int32_t>(kRowTokens, -1), targets = ids, positions = ids;
  std::vector<uint8_t> counted = std::vector<uint8_t>(kRowTokens, 9), further = counted;
  ReadRow(const RowOrder& order, int64_t k) {
    order.read(
        k, {.ids = ids, .targets = targets, .counted = counted, .positions = positions, .further_counted = further});
  }
};

// The first token of a completion is predicted from the last of its prompt.
TEST_F(Rows, OfTheirTokensThoseOfTheCompletionAreTargets) {
  const RowOrder order = order_of(kGood + row_of("[7]", "[8, 9, 10, 11, 12, 13, 14]", "[19]"), 2, false);
  EXPECT_EQ(order.samples_per_epoch(), 2);
  const ReadRow chosen(order, 0), rejected(order, 1), longest(order, 2);
  EXPECT_EQ(chosen.ids, (std::vector<int32_t>{1, 2, 3, 4, 5, 0, 0, 0}));
  EXPECT_EQ(chosen.targets, (std::vector<int32_t>{2, 3, 4, 5, 0, 0, 0, 0}));
  EXPECT_EQ(chosen.counted, (std::vector<uint8_t>{0, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(chosen.positions, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(chosen.further, std::vector<uint8_t>(kRowTokens, 0));
  EXPECT_EQ(order.counted(0).targets, 2);
  EXPECT_EQ(rejected.counted, (std::vector<uint8_t>{0, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(order.counted(1).targets, 1);
  EXPECT_EQ(longest.counted, (std::vector<uint8_t>{1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(longest.targets, (std::vector<int32_t>{8, 9, 10, 11, 12, 13, 14, 0}));
}

TEST_F(Rows, ThatAreScoredCountTheirLastTokenAlone) {
  const RowOrder order = order_of(kGood + row_of("[7]", "[8, 9, 10, 11, 12, 13, 14]", "[19]"), 2, false, true);
  const std::vector<size_t> last{4, 3, 7, 1};
  for (size_t k = 0; k < last.size(); ++k) {
    std::vector<uint8_t> counted(kRowTokens, 0);
    counted[last[k]] = 1;
    EXPECT_EQ(ReadRow(order, int64_t(k)).counted, counted) << k;
    EXPECT_EQ(order.counted(int64_t(k)).targets, 1);
  }
}

TEST_F(Rows, AreShuffledWholeEachOnceAnEpoch) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += row_of(fmt::format("[{}]", i), "[1, 2]", "[3]");
  const RowOrder shuffled = order_of(text, 4, true), again = order_of(text, 4, true), plain = order_of(text, 4, false);
  std::vector<int64_t> epochs[2];
  for (int64_t k = 0; k < 40; ++k) {
    EXPECT_EQ(plain.row_of(k), k / 2 % 10);
    EXPECT_EQ(shuffled.row_of(k), shuffled.row_of(k / 2 * 2)) << "both sequences of a pair";
    EXPECT_EQ(shuffled.row_of(k), again.row_of(k));
    EXPECT_EQ(shuffled.counted(k).targets, k % 2 == 0 ? 2 : 1);
    if (k % 2 == 0) epochs[k / 20].push_back(shuffled.row_of(k));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& epoch : epochs) EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 10u);
}

std::string rollout_of(int prompt, const std::string& completion, const std::string& reward, const std::string& logps) {
  return fmt::format(R"({{"prompt": [{}], "completion": {}, "reward": {}, "old_logps": {}}})", prompt, completion,
                     reward, logps) +
         "\n";
}

class Rollouts : public ::testing::Test {
 protected:
  RowOrder open(const std::string& text, RowOrder::Spec spec = {.rows_of_step = 2, .rows_of_group = 2}) {
    const auto file = dir_ / "rollouts.jsonl";
    std::ofstream(file) << text;
    spec.seq_length = kRowTokens;
    return RowOrder(IdRows({.file = file,
                            .completions = {"completion"},
                            .number = "reward",
                            .token_numbers = {{"old_logps"}},
                            .vocab_size = kRowVocabulary,
                            .seq_length = kRowTokens}),
                    spec);
  }
  TempDir dir_;
};

TEST_F(Rollouts, HaveARewardAndANumberForEachToken) {
  const RowOrder order = open(rollout_of(1, "[2, 3]", "-1.5", "[-0.5, -2]") + rollout_of(1, "[4]", "2", "[-1e-3]"));
  const IdRows& rows = order.id_rows();
  EXPECT_EQ(rows.number(0), -1.5);
  EXPECT_EQ(rows.number(1), 2);
  EXPECT_EQ(std::vector(rows.token_numbers(0).begin(), rows.token_numbers(0).end()), (std::vector<double>{-0.5, -2}));
  EXPECT_EQ(std::vector(rows.token_numbers(1).begin(), rows.token_numbers(1).end()), (std::vector<double>{-1e-3}));
}

TEST_F(Rollouts, BadOnesAreRefusedByFileAndLine) {
  const std::string good = rollout_of(1, "[2]", "1", "[-1]");
  const auto refusal = [&](const std::string& second) { return error_of([&] { open(good + second); }); };
  EXPECT_SAYS(refusal(rollout_of(1, "[2, 3]", "1", "[-1]")),
              "rollouts.jsonl: line 2: \"old_logps\": has 1 numbers for the 2 tokens of \"completion\"");
  EXPECT_SAYS(refusal(rollout_of(1, "[2]", "\"good\"", "[-1]")), "line 2: \"reward\": expected a number");
  EXPECT_SAYS(refusal(rollout_of(1, "[2]", "1", "[\"x\"]")), "line 2: \"old_logps\": expected a number, got \"x\"");
  EXPECT_SAYS(refusal(rollout_of(1, "[2]", "1", "[null]")), "line 2: \"old_logps\": expected a number");
  EXPECT_SAYS(refusal(rollout_of(2, "[2]", "1", "[-1]")), "line 2: its prompt is not that of line 1");
  EXPECT_SAYS(refusal(good + good), "3 rows are no whole groups");
}

class Examples : public ::testing::Test {
 protected:
  RowOrder open(const std::vector<std::string>& rows, int64_t rows_of_step, bool shuffle = false) {
    const auto file = dir_ / "examples.jsonl";
    std::ofstream out(file);
    for (const std::string& row : rows) out << row << "\n";
    out.close();
    return RowOrder(IdRows({.file = file,
                            .completions = {"completion"},
                            .number = "label",
                            .number_is_flag = true,
                            .vocab_size = kRowVocabulary,
                            .seq_length = kRowTokens}),
                    {.rows_of_step = rows_of_step, .seq_length = kRowTokens, .mixes = true, .shuffle = shuffle});
  }
  static std::string example(const std::string& prompt, const std::string& completion, const std::string& label) {
    return fmt::format(R"({{"prompt": {}, "completion": {}, "label": {}}})", prompt, completion, label);
  }
  TempDir dir_;
};

TEST_F(Examples, AreReadWithTheCompletionBeforeToo) {
  const std::vector<std::string> rows{example("[1]", "[11, 12]", "true"), example("[2, 2]", "[13]", "false"),
                                      example("[3]", "[14]", "true"), example("[4]", "[15, 16, 17]", "false")};
  const RowOrder order = open(rows, 2);
  EXPECT_EQ(order.id_rows().number(0), 1);
  EXPECT_EQ(order.id_rows().number(1), 0);
  const auto others = [&](int64_t k) {
    ReadRow row(order, k);
    order.read_other(k, {.ids = row.ids,
                         .targets = row.targets,
                         .counted = row.counted,
                         .positions = row.positions,
                         .further_counted = row.further});
    return row;
  };
  EXPECT_EQ(others(0).ids, (std::vector<int32_t>{1, 13, 0, 0, 0, 0, 0, 0})) << "the first takes the step's last";
  EXPECT_EQ(others(1).ids, (std::vector<int32_t>{2, 2, 11, 12, 0, 0, 0, 0}));
  EXPECT_EQ(others(1).counted, (std::vector<uint8_t>{0, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(others(2).ids, (std::vector<int32_t>{3, 15, 16, 17, 0, 0, 0, 0}));
  EXPECT_EQ(others(3).ids, (std::vector<int32_t>{4, 14, 0, 0, 0, 0, 0, 0}));
}

TEST_F(Examples, ThatCannotBeMixedAreRefusedByLine) {
  const std::vector<std::string> rows{example("[1, 2, 3, 4, 5]", "[1, 2]", "true"),
                                      example("[1]", "[2, 3, 4, 5]", "false")};
  for (const bool shuffle : {false, true})
    EXPECT_SAYS(error_of([&] { open(rows, 2, shuffle); }),
                "line 1: its prompt with the completion of line 2 has 9 tokens, more than train.seq_length = 8");
  EXPECT_SAYS(error_of([&] { open({example("[1]", "[2]", "1")}, 1); }), "line 1: \"label\": expected true or false");
}

// Each batch comes several times in a row; groups stay together.
TEST_F(Rollouts, AreWalkedBatchByBatchInWholeGroups) {
  std::string text;
  for (int i = 0; i < 12; ++i) text += rollout_of(i / 2, "[2]", std::to_string(i), "[-1]");
  const RowOrder plain = open(text, {.rows_of_step = 4, .steps_of_batch = 3, .rows_of_group = 2});
  EXPECT_EQ(plain.samples_per_epoch(), 36);
  for (int64_t k = 0; k < 72; ++k) EXPECT_EQ(plain.row_of(k), (k / 12 * 4 + k % 4) % 12) << k;
  const RowOrder shuffled =
      open(text, {.rows_of_step = 4, .steps_of_batch = 3, .rows_of_group = 2, .seed = 3, .shuffle = true});
  std::set<int64_t> seen;
  for (int64_t k = 0; k < 36; ++k) {
    seen.insert(shuffled.row_of(k));
    EXPECT_EQ(shuffled.row_of(k) % 2, k % 2);
    EXPECT_EQ(shuffled.row_of(k) / 2, shuffled.row_of(k / 2 * 2) / 2);
    EXPECT_EQ(shuffled.row_of(k), shuffled.row_of(k / 12 * 12 + k % 4)) << "the same batch";
  }
  EXPECT_EQ(seen.size(), 12u);
}

TEST_F(Rows, AnotherFileOrOrderHasAnotherFingerprint) {
  const std::string before = order_of(kGood + kGood, 1, false).fingerprint();
  EXPECT_EQ(order_of(kGood + kGood, 1, false).fingerprint(), before);
  EXPECT_NE(order_of(kGood + kGood, 1, true).fingerprint(), before);
  EXPECT_NE(order_of(kGood + row_of("[1, 2, 3]", "[4, 5]", "[7]"), 1, false).fingerprint(), before);
}

}  // namespace
}  // namespace weft
