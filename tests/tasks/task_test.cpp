// What tasks ask and how answers are scored, without a model.
#include "weft/tasks/task.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "support.h"
#include "weft/base/error.h"
#include "weft/tasks/compare.h"
#include "weft/tasks/prompts.h"
#include "weft/tasks/results.h"
#include "weft/tasks/written_tasks.h"

namespace weft {
namespace {

using testing::error_of;
using testing::spill;
using testing::TempDir;

TaskItem item_of(const std::string& task, const std::string& row) {
  const std::string where = "t.jsonl: line 3";
  return read_item(find_task("--tasks", task), {nlohmann::json::parse(row), where, 3});
}
std::string error_of_row(const std::string& task, const std::string& row) {
  return error_of<FileError>([&] { item_of(task, row); });
}

struct TwoShapes {
  std::string task, a, b;
};

// The shape of the data set's own files, and that of one file for all tasks.
TEST(Tasks, AQuestionIsTheSameInEveryShape) {
  const std::vector<TwoShapes> cases = {
      {"piqa", R"({"goal": "Dry it", "sol1": "wet", "sol2": "sun", "label": 1})",
       R"({"query": "Question: Dry it\n", "choices": ["wet", "sun"], "gold": 1})"},
      {"arc_easy",
       R"({"question": "Why?", "choices": {"text": ["no", "so", "go"], "label": ["A", "B", "C"]}, "answerKey": "C"})",
       R"({"query": "Question: Why?", "choices": ["no", "so", "go"], "gold": 2})"},
      {"arc_easy",
       R"({"question": {"stem": "Why?", "choices": [{"text": "no", "label": "1"}, {"text": "so", "label": "2"}]},
           "answerKey": "1"})",
       R"({"query": "Question: Why?", "choices": ["no", "so"], "gold": 0})"},
      {"winogrande", R"({"sentence": "Ann saw Bo and _ ran off.", "option1": "Ann", "option2": "Bo", "answer": "2"})",
       R"({"context_options": ["Ann saw Bo and Ann", "Ann saw Bo and Bo"], "continuation": "ran off.", "gold": 1})"},
      {"copa",
       R"({"premise": "It rained.", "choice1": "I ran.", "choice2": "I sat.", "question": "effect", "label": 0})",
       R"({"query": "It rained therefore", "choices": ["i ran.", "i sat."], "gold": 0})"},
      {"lambada", R"({"text": "He said his own name"})", R"({"context": "He said his own", "continuation": "name"})"},
  };
  for (const TwoShapes& c : cases) {
    const TaskItem a = item_of(c.task, c.a), b = item_of(c.task, c.b);
    EXPECT_EQ(a.contexts, b.contexts) << c.task;
    EXPECT_EQ(a.choices, b.choices) << c.task;
    EXPECT_EQ(a.gold, b.gold) << c.task;
    for (const std::string& choice : a.choices) EXPECT_EQ(choice[0], ' ') << "a blank belongs to the choice";
  }
  EXPECT_EQ(item_of("piqa", cases[0].a).contexts[0], "Question: Dry it\nAnswer:");
  const TaskItem schema = item_of("winogrande", cases[3].a);
  EXPECT_EQ(schema.size(), 2u);
  EXPECT_EQ(schema.context(1) + schema.choice(1), "Ann saw Bo and Bo ran off.");
}

TEST(Tasks, ARowOfTheWrongShapeIsNamedWithWhatIsRead) {
  const std::vector<TwoShapes> cases = {
      {"piqa", R"({"goal": "x", "sol1": "a", "label": 1})", "t.jsonl: line 3: \"sol2\": is missing"},
      {"piqa", R"({"goal": "x", "sol1": "a", "sol2": "b", "label": 2})", "from 0 to 1; a split without answers"},
      {"piqa", R"({"goal": "x", "sol1": "a", "sol2": "b", "label": -1})", "got -1"},
      {"piqa", R"({"query": "x", "choices": ["a"], "gold": 0})", "\"choices\": expected at least two texts"},
      {"piqa", R"({"text": "x"})", "a row of piqa is {query, choices, gold} or {goal, sol1, sol2, label}"},
      {"piqa", R"([1])", "t.jsonl: line 3"},
      {"arc_easy", R"({"question": "x", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "E"})",
       "\"answerKey\": expected one of A, B, got \"E\""},
      {"arc_easy", R"({"question": "x", "choices": {"text": ["a", "b"], "label": ["A", "B", "C"]}, "answerKey": "C"})",
       "\"choices.label\": expected 2 labels"},
      {"winogrande", R"({"sentence": "no blank", "option1": "a", "option2": "b", "answer": "1"})", "a sentence with _"},
      {"winogrande", R"({"sentence": "a _ c", "option1": "a", "option2": "b", "answer": ""})", "\"1\" or \"2\""},
      {"lambada", R"({"text": "word"})", "at least two words"},
      {"gsm8k", R"({"question": "1 + 1?", "answer": "2"})", "\"#### \" and a number"},
  };
  for (const TwoShapes& c : cases) EXPECT_SAYS(error_of_row(c.task, c.a), c.b);
  EXPECT_SAYS(error_of<ConfigError>([] { find_task("--tasks", "pika"); }),
              "did you mean piqa?; there are arc_challenge, ");
}

// An archive as tar makes it: a header and the bytes in blocks of 512.
std::string tar_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string all;
  for (const auto& [name, bytes] : files) {
    std::string header(512, '\0');
    header.replace(0, name.size(), name);
    header.replace(124, 11, fmt::format("{:011o}", bytes.size()));
    header[156] = '0';
    header.replace(257, 5, "ustar");
    all += header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
  }
  return all + std::string(1024, '\0');
}

TEST(Tasks, EachFileOfAFolderOrArchiveIsASet) {
  TempDir dir;
  const std::string one = R"({"sentence_good": "a", "sentence_bad": "b"})"
                          "\n",
                    two = one + one;
  std::filesystem::create_directory(dir / "blimp");
  spill(dir / "blimp/x.jsonl", one);
  spill(dir / "blimp/y.jsonl", two);
  spill(dir / "blimp/README.md", "not rows");
  spill(dir / "blimp.tar", tar_of({{"data/x.jsonl", one}, {"data/README.md", "not rows"}, {"data/y.jsonl", two}}));
  for (const std::string& path : {(dir / "blimp").string(), (dir / "blimp.tar").string()}) {
    const std::vector<TaskSet> sets = read_task_sets(find_task_files({"--tasks", {"blimp=" + path}}, {})[0], 0);
    ASSERT_EQ(sets.size(), 2u) << path;
    EXPECT_EQ(sets[1].name, "blimp_y");
    EXPECT_EQ(sets[1].group, "blimp");
    EXPECT_EQ(sets[1].items.size(), 2u);
    EXPECT_EQ(read_task_sets(find_task_files({"--tasks", {"blimp=" + path}}, {})[0], 1)[1].items.size(), 1u);
  }
  const auto refused = [&](const std::string& tar) {
    spill(dir / "bad.tar", tar);
    return error_of<FileError>([&] {
      read_task_sets(find_task_files({"--tasks", {"blimp=" + (dir / "bad.tar").string()}}, {})[0], 0);
    });
  };
  EXPECT_SAYS(refused(tar_of({{"data/x.jsonl", std::string(4000, ' ')}}).substr(0, 3000)),
              "is no tar archive, or is cut short");
  EXPECT_SAYS(refused(tar_of({{"a/x.jsonl", one}, {"b/x.jsonl", two}})), "two of its files give a set blimp_x");
  std::string long_name = tar_of({{"././@LongLink", std::string(120, 'n')}, {"x.jsonl", one}});
  long_name[156] = 'L';
  EXPECT_SAYS(refused(long_name), "a file whose name is longer than 100 characters");
}

TEST(Tasks, FilesAreFoundByNameOrRefused) {
  TempDir dir;
  spill(dir / "copa.jsonl", "");
  EXPECT_EQ(find_task_files({"--tasks", {"copa"}}, dir.path())[0].path, dir / "copa.jsonl");
  const auto error = [&](const std::vector<std::string>& words, const std::filesystem::path& folder) {
    return error_of([&] { find_task_files({"--tasks", words}, folder); });
  };
  EXPECT_SAYS(error({"copa"}, {}), "name its file, as copa=FILE");
  EXPECT_SAYS(error({"piqa"}, dir.path()), "has no piqa, piqa.jsonl, piqa.jsonl.gz");
  EXPECT_SAYS(error({"copa", "copa=x"}, dir.path()), "copa is named twice");
  EXPECT_SAYS(error({"copa=" + (dir / "none").string()}, {}), "there is no ");
  EXPECT_SAYS(error_of<FileError>([&] {
                read_task_sets(find_task_files({"--tasks", {"copa"}}, dir.path())[0], 0);
              }),
              "has no rows");
}

TaskSet set_of(const std::string& task, size_t items) {
  TaskSet set{.name = task, .group = "", .task = find_task("--tasks", task), .items = {}, .hash = "h"};
  for (size_t i = 0; i < items; ++i)
    set.items.push_back({.contexts = {fmt::format("Q{} ", i)}, .choices = {" yes", " no!!"}, .gold = i % 2});
  return set;
}

TEST(TaskPrompts, TheChoiceIsScoredAndTheLongestContextLosesItsBeginning) {
  const auto bytes = make_byte_tokenizer();
  const TaskSet set = set_of("piqa", 2);
  const TaskTexts whole = texts_to_score(set, set, {.tokenizer = *bytes, .window = 100});
  ASSERT_EQ(whole.texts.size(), 4u);
  EXPECT_EQ(whole.first, (std::vector<size_t>{0, 2, 4}));
  EXPECT_EQ(bytes->decode(whole.texts[1].ids, Tokenizer::Specials::kShown), "Q0  no!!");
  EXPECT_EQ(whole.texts[1].scored, 6) << "the blank at the end of the context goes to the choice";
  EXPECT_EQ(whole.truncated, 0);
  const TaskTexts cut = texts_to_score(set, set, {.tokenizer = *bytes, .window = 6});
  EXPECT_EQ(bytes->decode(cut.texts[1].ids, Tokenizer::Specials::kShown), "0  no!!");
  EXPECT_EQ(cut.texts[0].ids.size(), 7u) << "the last token is only foretold";
  EXPECT_EQ(cut.truncated, 2);
  const TaskTexts longer = texts_to_score(set, set, {.tokenizer = *bytes, .window = 5});
  EXPECT_EQ(bytes->decode(longer.texts[1].ids, Tokenizer::Specials::kShown), "  no!!");
  EXPECT_EQ(longer.texts[1].scored, 5) << "what the model can see of the answer";
}

TEST(TaskPrompts, TheFirstTokenOfASentenceAloneIsScoredToo) {
  const auto bytes = make_byte_tokenizer();
  TaskSet set = set_of("blimp", 1);
  set.items[0].contexts = {""};
  const TaskTexts prompts = texts_to_score(set, set, {.tokenizer = *bytes, .window = 100});
  EXPECT_EQ(prompts.texts[0].ids, (std::vector<int32_t>{256, ' ', 'y', 'e', 's'}));
  EXPECT_EQ(prompts.texts[0].scored, 4);
  set.items[0].choices[0] = "";
  EXPECT_SAYS(error_of<FileError>([&] { texts_to_score(set, set, {.tokenizer = *bytes, .window = 100}); }),
              "an answer has no token of its own");
}

TEST(TaskPrompts, ExamplesAreOtherRowsChosenBySeedAndRow) {
  const auto bytes = make_byte_tokenizer();
  const TaskSet set = set_of("piqa", 5), pool = set_of("piqa", 2);
  PromptSpec spec{.tokenizer = *bytes, .num_fewshot = 4, .seed = 7, .window = 100};
  for (size_t i = 0; i < 5; ++i) {
    const std::string text = examples_before(set, i, set, spec);
    for (size_t other = 0; other < 5; ++other)
      EXPECT_EQ(text.find(fmt::format("Q{}  {}\n\n", other, other % 2 == 0 ? "yes" : "no!!")) != text.npos, other != i);
  }
  spec.num_fewshot = 2;
  EXPECT_EQ(examples_before(set, 3, set, spec), examples_before(set, 3, set, spec));
  EXPECT_SAYS(examples_before(set, 3, pool, spec), "Q1  no!!");
  EXPECT_SAYS(error_of<ConfigError>([&] { examples_before(set, 1, pool, spec); }), "has only 1 other rows");
  std::set<std::string> seen;
  for (spec.seed = 0; spec.seed < 20; ++spec.seed) seen.insert(examples_before(set, 3, set, spec));
  EXPECT_GT(seen.size(), 4u);
  spec.num_fewshot = 5;
  EXPECT_SAYS(error_of<ConfigError>([&] { examples_before(set, 0, set, spec); }), "has only 4 other rows");
}

TEST(TaskResults, AccuracyIsByLogProbabilityAndByBytes) {
  TaskSet set = set_of("piqa", 2);  // " yes" has 3 bytes behind the blank, " no!!" 4
  const auto results =
      results_of(set, {.log_probs = {{-3, -3.9}, {-3, -3.9}}, .likeliest = {}, .written = {}, .judging = {}});
  EXPECT_EQ(results["samples"][0]["acc"], 1);
  EXPECT_EQ(results["samples"][0]["acc_norm"], 0) << "-3.9 / 4 is above -3 / 3";
  EXPECT_EQ(results["metrics"]["acc"]["value"], 0.5);
  EXPECT_DOUBLE_EQ(results["metrics"]["acc"]["stderr"], 0.5) << "deviation sqrt(1/2), over sqrt(2)";
  EXPECT_EQ(results["metrics"]["acc_norm"]["value"], 0.5);
  const auto tie = results_of(set, {.log_probs = {{-3, -3}, {-3, -3}}, .likeliest = {}, .written = {}, .judging = {}});
  EXPECT_EQ(tie["samples"][0]["acc"], 1) << "the first of equal ones is the answer";
}

TEST(TaskResults, PerplexityIsOfTheMeanWord) {
  TaskSet set = set_of("lambada", 2);
  const auto m =
      results_of(set, {.log_probs = {{-1}, {-3}}, .likeliest = {true, false}, .written = {}, .judging = {}})["metrics"];
  EXPECT_DOUBLE_EQ(m["perplexity"]["value"], std::exp(2.0));
  EXPECT_DOUBLE_EQ(m["perplexity"]["stderr"], std::exp(2.0));
  EXPECT_EQ(m["acc"]["value"], 0.5);
}

TEST(TaskResults, NumbersAreFoundAsTheHarnessFindsThem) {
  EXPECT_EQ(strict_number("so\n#### 1,200."), "1200");
  EXPECT_EQ(strict_number("#### -3 apples, #### 4"), "-3");
  EXPECT_EQ(strict_number("the answer is 4"), "[invalid]");
  EXPECT_EQ(strict_number("#### $18"), "[invalid]") << "the expression has no dollars";
  EXPECT_EQ(last_number("it costs $1,250.50."), "1250.50");
  EXPECT_EQ(last_number("3 of them, and 7"), "7");
  EXPECT_EQ(last_number("5 - -2"), "-2");
  EXPECT_EQ(last_number("none, really."), "[invalid]");
  TaskSet set = set_of("gsm8k", 2);
  for (TaskItem& item : set.items) item.choices = {" 1 + 1 = 2\n#### 2"};
  const auto r =
      results_of(set, {.log_probs = {}, .likeliest = {}, .written = {" it is 2", " #### 2\n3"}, .judging = {}});
  EXPECT_EQ(r["samples"][0]["strict_match"], 0);
  EXPECT_EQ(r["samples"][0]["flexible_extract"], 1);
  EXPECT_EQ(r["samples"][1]["strict_match"], 1);
  EXPECT_EQ(r["samples"][1]["flexible_extract"], 0);
}

TEST(TaskResults, AGroupIsTheMeanOfItsSets) {
  TaskSet small = set_of("blimp", 2), large = set_of("blimp", 4);
  small.group = large.group = "blimp", small.name = "blimp_a", large.name = "blimp_b";
  const SetAnswers right{.log_probs = {{-1, -2}, {-2, -1}}, .likeliest = {}, .written = {}, .judging = {}},
      half{.log_probs = {{-1, -2}, {-1, -2}, {-1, -2}, {-1, -2}}, .likeliest = {}, .written = {}, .judging = {}};
  const auto all = with_groups({results_of(small, right), results_of(large, half)});
  EXPECT_DOUBLE_EQ(all["groups"][0]["metrics"]["acc"]["value"], 0.75);
  EXPECT_DOUBLE_EQ(all["groups"][0]["metrics"]["acc"]["stderr"], std::sqrt(1.0 / 12) / 2);
  EXPECT_EQ(all["groups"][0]["items"], 6);
}

std::filesystem::path written(const TempDir& dir, const std::string& name,
                              const std::vector<std::vector<double>>& scores, const std::string& task = "piqa") {
  TaskSet set = set_of(task, scores.size());
  spill(
      dir / name,
      with_groups(
          {results_of(
              set, {.log_probs = scores, .likeliest = std::vector<bool>(scores.size()), .written = {}, .judging = {}})})
          .dump());
  return dir / name;
}

TEST(TaskCompare, PairsAreTestedByMcNemar) {
  TempDir dir;
  std::vector<std::vector<double>> a(10, {-1, -2}), b = a;
  for (const size_t i : {1, 3, 5, 7, 9}) b[i] = {-2, -1};  // b is right there, a is not
  const auto c = compare_results(written(dir, "a.json", a), written(dir, "b.json", b));
  ASSERT_EQ(c.size(), 2u);
  EXPECT_EQ(c[0].metric, "acc");
  EXPECT_DOUBLE_EQ(c[0].a, 0.5);
  EXPECT_DOUBLE_EQ(c[0].b, 1);
  EXPECT_NEAR(c[0].p, 2.0 / 32, 1e-12) << "five of five";
  EXPECT_NEAR(c[0].error, std::sqrt(0.25 / 9), 1e-12);
  EXPECT_NEAR(sign_test(3, 10), 2 * (1 + 10 + 45 + 120) / 1024.0, 1e-12);
  EXPECT_EQ(sign_test(0, 0), 1);
  EXPECT_EQ(sign_test(5, 10), 1);
  EXPECT_SAYS(to_text(c), "acc");
  EXPECT_NEAR(compare_results(dir / "b.json", dir / "a.json")[0].p, c[0].p, 1e-12);
}

TEST(TaskCompare, LogProbabilitiesAreTestedByTheirMeanDifference) {
  TempDir dir;
  const auto c = compare_results(written(dir, "a.json", {{-1}, {-5}, {-9}, {-2}}, "lambada"),
                                 written(dir, "b.json", {{-0.5}, {-4}, {-7.5}, {-1}}, "lambada"));
  const Comparison& log_prob = c.at(1);
  EXPECT_EQ(log_prob.metric, "log_prob");
  EXPECT_NEAR(log_prob.b - log_prob.a, 1, 1e-12);
  EXPECT_NEAR(log_prob.error, std::sqrt(0.5 / 3 / 4), 1e-12);
  EXPECT_NEAR(log_prob.p, std::erfc(1 / std::sqrt(0.5 / 12) / std::sqrt(2.0)), 1e-12);
}

TEST(TaskCompare, OtherQuestionsAreRefused) {
  TempDir dir;
  const auto a = written(dir, "a.json", {{-1, -2}, {-1, -2}}), b = written(dir, "b.json", {{-1, -2}});
  EXPECT_SAYS(error_of<FileError>([&] { compare_results(a, b); }), "piqa: the two results are of other questions");
  const auto c = written(dir, "c.json", {{-1}, {-1}}, "lambada");
  EXPECT_SAYS(error_of<FileError>([&] { compare_results(a, c); }), "have no result in common");
  std::vector<std::string> left_out;
  const auto both = nlohmann::json::parse(testing::slurp(a)), other = nlohmann::json::parse(testing::slurp(c));
  nlohmann::json all = both;
  all["results"].push_back(other["results"][0]);
  spill(dir / "both.json", all.dump());
  EXPECT_EQ(compare_results(a, dir / "both.json", &left_out).size(), 2u);
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_SAYS(left_out[0], "lambada: only in ");
  spill(dir / "d.json", R"({"results": [{"task": "piqa", "hash": "h", "samples": []}]})");
  EXPECT_SAYS(error_of<FileError>([&] { compare_results(dir / "d.json", a); }), "\"samples\"");
  spill(dir / "e.json", R"({"loss": 1})");
  EXPECT_SAYS(error_of<FileError>([&] { compare_results(dir / "e.json", a); }), "holds no results");
}

}  // namespace
}  // namespace weft
