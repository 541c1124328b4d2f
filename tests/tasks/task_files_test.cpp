// The files that users have, read wholly as `weft eval --tasks` reads them.
#include "weft/tasks/task_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "support.h"
#include "weft/tasks/questions.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// What somebody saw who looked into the file: a row, from 1, of one set, a part of what it asks and the end of what is
// right; and a command that counts the rows of all its sets.
struct FileOfUsers {
  std::string task, file, count;
  size_t sets;
  std::string set;
  int64_t row;
  std::string asks, right;
};

const std::string kLines = "grep -c . '{}'", kPackedLines = "gzip -dc '{}' | grep -c .";
constexpr int64_t kEveryQuestion = 1 << 14;  // tokens: longer than any with its answer

int64_t number_said_by(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  long long number = -1;
  if (pipe == nullptr || std::fscanf(pipe, "%lld", &number) != 1) ADD_FAILURE() << command;
  if (pipe != nullptr) pclose(pipe);
  return number;
}

std::string right_of(const TaskItem& item) {
  if (item.given.is_null()) return item.choice(item.gold);
  return item.given.is_string() ? item.given.get<std::string>() : item.given.dump();
}

const Asked& set_named(const std::vector<Asked>& asked, const std::string& name) {
  const auto at = std::find_if(asked.begin(), asked.end(), [&](const Asked& a) { return a.set.name == name; });
  if (at == asked.end()) throw std::runtime_error("there is no set " + name);
  return *at;
}

std::string text_of(const std::vector<int32_t>& ids) {
  return make_byte_tokenizer()->decode(ids, Tokenizer::Specials::kHidden);
}

void expect_read_whole(const FileOfUsers& f) {
  SCOPED_TRACE(f.task);
  const fs::path file = testing::shared_dir() / "data" / f.file;
  const QuestionsSpec spec{.tasks = {f.task + "=" + file.string()}, .window = kEveryQuestion};
  const std::vector<Asked> asked = ask(find_tasks(spec), spec, *make_byte_tokenizer());
  EXPECT_EQ(asked.size(), f.sets);
  int64_t rows = 0;
  for (const Asked& a : asked) {
    rows += std::ssize(a.set.items);
    EXPECT_EQ(a.truncated(), 0) << a.set.name;
    EXPECT_EQ(a.is_written() ? a.open.prompts.size() : a.scored.first.size() - 1, a.set.items.size()) << a.set.name;
  }
  EXPECT_EQ(rows, number_said_by(fmt::format(fmt::runtime(f.count), file.string())));

  const Asked& a = set_named(asked, f.set);
  const auto i = size_t(f.row - 1);
  ASSERT_GT(a.set.items.size(), i);
  const TaskItem& item = a.set.items[i];
  EXPECT_EQ(item.row, f.row);
  EXPECT_TRUE(right_of(item).ends_with(f.right)) << right_of(item);
  const std::string text =
      text_of(a.is_written() ? a.open.prompts[i] : a.scored.texts[a.scored.first[i] + item.gold].ids);
  EXPECT_SAYS(text, f.asks);
  EXPECT_TRUE(a.is_written() || text.ends_with(f.right)) << text;
}

TEST(TaskFiles, OfChoicesAreReadWhole) {
  WEFT_NEEDS_SHARED();
  expect_read_whole(
      {"piqa", "eval/piqa.jsonl", kLines, 1, "piqa", 1838,
       "Question: Where can I buy a tennis ball\nAnswer: ", " You can purchase a tennis ball at any sports store"});
  expect_read_whole({"arc_easy", "eval/arc_easy.jsonl", kLines, 1, "arc_easy", 3,
                     "produce haploid cells. Where does meiosis occur?\nAnswer: ", " ovary cells"});
  expect_read_whole({"winogrande", "eval/winogrande.jsonl", kLines, 1, "winogrande", 1267,
                     "She chose the black car over the green car, because the green car has",
                     " has more brighter color."});
  expect_read_whole({"copa", "eval/copa.jsonl", kLines, 1, "copa", 100, "The woman was in a bad mood, therefore ",
                     " she told her friend to leave her alone."});
}

TEST(TaskFiles, OfLastWordsAreReadWhole) {
  WEFT_NEEDS_SHARED();
  expect_read_whole({"lambada", "eval/lambada_openai.jsonl.gz", kPackedLines, 1, "lambada", 5153,
                     "I would never forget the rules, Grand", " Grandmother"});
}

TEST(TaskFiles, OfWrittenAnswersAreReadWhole) {
  WEFT_NEEDS_SHARED();
  expect_read_whole({"gsm8k", "math/gsm8k_train.jsonl.gz", kPackedLines, 1, "gsm8k", 7473,
                     "Question: At 30, Anika is 4/3 the age of Maddie.", "\n#### 50"});
  expect_read_whole({"humaneval", "eval/HumanEval.jsonl.gz", kPackedLines, 1, "humaneval", 164,
                     "\ndef generate_integers(a, b):\n    \"\"\"\n    Given two positive integers",
                     "\ncheck(generate_integers)\n"});
  expect_read_whole({"ifeval", "eval/ifeval_input_data.jsonl", kLines, 1, "ifeval", 1,
                     "Write a 300+ word summary of the wikipedia page \"https://en.wikipedia.org/wiki/Raymond_III,",
                     R"("num_words":300,"relation":"at least"},"id":"length_constraints:number_words"}])"});
}

// As its authors have it: an archive of files of examples, and of texts that stand before the questions.
TEST(TaskFiles, OfBigBenchHardAreReadWhole) {
  WEFT_NEEDS_SHARED();
  expect_read_whole({"bbh", "eval/bbh.tar.gz",
                     R"(tar -xzOf '{}' --wildcards 'bbh/*.json' | grep -o '"target":' | wc -l)", 27, "bbh_snarks", 178,
                     "Q: Which statement is sarcastic?\nOptions:\n(A) We've not spoken since graduating", "(A)"});
  const std::string word = "bbh=" + (testing::shared_dir() / "data/eval/bbh.tar.gz").string();
  const QuestionsSpec spec{.tasks = {word}, .fewshot_from = {word}, .limit = 1, .window = kEveryQuestion};
  const std::vector<Asked> asked = ask(find_tasks(spec), spec, *make_byte_tokenizer());
  EXPECT_EQ(asked.size(), 27u);
  for (const Asked& a : asked) EXPECT_EQ(a.set.preamble.find("canary"), std::string::npos) << a.set.name;
  const std::string text = text_of(set_named(asked, "bbh_snarks").open.prompts[0]);
  EXPECT_TRUE(text.starts_with("Determine which of two sentences is sarcastic.\n\nAccording to Cambridge")) << text;
  EXPECT_TRUE(text.ends_with("\nA: Let's think step by step.\n")) << text;
}

TEST(TaskFilesSlow, OfBlimpAreReadWhole) {
  WEFT_NEEDS_SHARED();
  expect_read_whole({"blimp", "eval/blimp.tar.gz", "tar -xzOf '{}' --wildcards 'data/*.jsonl' | grep -c .", 67,
                     "blimp_causative", 1000, "Wayne was burning", "Wayne was burning many bananas."});
}

TEST(TaskFiles, AreFoundInTheirFolder) {
  WEFT_NEEDS_SHARED();
  const fs::path folder = testing::shared_dir() / "data/eval";
  const auto places = find_task_files(
      {"--tasks", {"piqa", "arc_easy", "winogrande", "copa", "lambada_openai", "blimp", "bbh"}}, folder);
  const char* const files[] = {"piqa.jsonl", "arc_easy.jsonl",          "winogrande.jsonl",
                               "copa.jsonl", "lambada_openai.jsonl.gz", "blimp.tar.gz",
                               "bbh.tar.gz"};
  ASSERT_EQ(places.size(), std::size(files));
  for (size_t i = 0; i < places.size(); ++i) EXPECT_EQ(places[i].path, folder / files[i]);
}

}  // namespace
}  // namespace weft
