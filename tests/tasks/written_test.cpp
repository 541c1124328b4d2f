// How answers that a model writes are judged, without a model.
#include "weft/tasks/written_tasks.h"

#include <gtest/gtest.h>

#include <bit>

#include "support.h"
#include "weft/base/error.h"
#include "weft/tasks/compare.h"
#include "weft/tasks/instructions.h"
#include "weft/tasks/questions.h"
#include "weft/tasks/sandbox.h"

namespace weft {
namespace {

using testing::error_of;
using testing::spill;
using testing::TempDir;
using WrittenJson = nlohmann::json;

bool does(const std::string& id, const std::string& arguments, const std::string& reply) {
  const WrittenJson row{{"instruction_id_list", {id}}, {"kwargs", {WrittenJson::parse(arguments)}}};
  return follows(read_instructions(JsonFields(row, "t.jsonl: line 1"))[0], reply);
}

// A reply that follows each instruction, and one that does not.
TEST(Instructions, EachIsFollowedOrNot) {
  struct Case {
    std::string id, arguments, yes, no;
  };
  const std::vector<Case> cases = {
      {"change_case:capital_word_frequency", R"({"capital_frequency": 2, "capital_relation": "at least"})",
       "A BIG-ish word IS here", "ONE only"},
      {"change_case:english_capital", "{}", "THIS IS THE ANSWER OF A PERSON WHO SHOUTS.", "This is the answer."},
      {"change_case:english_lowercase", "{}", "this is the answer of a person who whispers.", "This is it."},
      {"combination:repeat_prompt", R"({"prompt_to_repeat": "Say hello."})", " say Hello. Hello!", "Hello! Say hello."},
      {"combination:two_responses", "{}", "one\n******\ntwo", "one ****** one"},
      {"detectable_content:number_placeholders", R"({"num_placeholders": 2})", "[name], [street\n] [city]", "[name]"},
      {"detectable_content:postscript", R"({"postscript_marker": "P.P.S"})", "Bye\nP. P.S. more", "Bye\nP.S. more"},
      {"detectable_content:postscript", R"({"postscript_marker": "P.S."})", "Bye\np.s. more", "Bye"},
      {"detectable_format:constrained_response", "{}", "Well. My answer is maybe.", "My answer is perhaps."},
      {"detectable_format:json_format", "{}", "```json\n{\"a\": [1]}\n```", "{a: 1}"},
      {"detectable_format:multiple_sections", R"({"num_sections": 2, "section_spliter": "SECTION"})",
       "SECTION 1\na\nSECTION 2\nb", "Section 1\nSECTION 2"},
      {"detectable_format:number_bullet_lists", R"({"num_bullets": 2})", "List:\n* a\n - b\n**c**", "* a\n* b\n* c"},
      {"detectable_format:number_highlighted_sections", R"({"num_highlights": 2})", "*a* and **b**", "*a* ** *"},
      {"detectable_format:title", "{}", "<<A poem>>\nla", "<< >>"},
      {"keywords:existence", R"({"keywords": ["sun", "moon"]})", "Sunny, by moonlight", "sun"},
      {"keywords:forbidden_words", R"({"forbidden_words": ["rock"]})", "rocky", "a Rock."},
      {"keywords:frequency", R"({"keyword": "story", "frequency": 2, "relation": "less than"})", "Story",
       "story STORY"},
      {"keywords:letter_frequency", R"({"letter": "Q", "let_frequency": 2, "let_relation": "at least"})", "Quick q",
       "quick"},
      {"language:response_language", R"({"language": "de"})", "Das ist die Antwort auf alle Fragen der Menschen.",
       "This is the answer to all questions of mankind."},
      {"length_constraints:nth_paragraph_first_word",
       R"({"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Weekend"})", "One.\n\n'Weekend, at last.",
       "Weekend.\n\nTwo"},
      {"length_constraints:number_paragraphs", R"({"num_paragraphs": 2})", "a\n***\nb\n***\n", "a\n***\n***\nb"},
      {"length_constraints:number_sentences", R"({"num_sentences": 3, "relation": "at least"})",
       "Is Dr. Smith in? No! He left", "Mr. J. Smith e.g. left. It was 3.5 miles"},
      {"length_constraints:number_words", R"({"num_words": 3, "relation": "less than"})", "two words", "it's two"},
      {"punctuation:no_comma", "{}", "a b", "a, b"},
      {"startend:end_checker", R"({"end_phrase": "The end."})", "So it was. the END.\" ", "The end. Really"},
      {"startend:quotation", "{}", " \"Yes\"\n", "\""},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(does(c.id, c.arguments, c.yes)) << c.id << ": " << c.yes;
    EXPECT_FALSE(does(c.id, c.arguments, c.no)) << c.id << ": " << c.no;
    EXPECT_FALSE(does(c.id, c.arguments, " \n")) << c.id;
  }
}

TEST(Instructions, WhatCannotBeCheckedIsRefusedByRow) {
  const auto error = [](const std::string& id, const std::string& arguments) {
    return error_of<FileError>([&] { does(id, arguments, "x"); });
  };
  EXPECT_SAYS(error("punctuation:no_dots", "{}"), "\"instruction_id_list\": expected instructions among change_case:");
  EXPECT_SAYS(error("length_constraints:number_words", R"({"num_words": 3})"), "\"0.relation\": is missing");
  EXPECT_SAYS(error("length_constraints:number_words", R"({"num_words": 3, "relation": "about"})"), "\"at least\"");
  EXPECT_SAYS(error("keywords:existence", R"({"keywords": ["("]})"),
              "t.jsonl: line 1: \"kwargs\": keywords:existence: ifeval: regular expression \"(?i)(\": ");
  EXPECT_SAYS(error("language:response_language", R"({"language": "xq"})"), "is no code of a language");
}

TEST(WrittenTasks, IfevalIsStrictAndLoose) {
  const Task task = find_task("--tasks", "ifeval");
  const WrittenJson row = WrittenJson::parse(R"({"prompt": "p", "instruction_id_list": ["startend:quotation",
      "punctuation:no_comma"], "kwargs": [{}, {"num_words": null}]})");
  const std::string where = "t";
  const TaskItem item = read_item(task, {row, where, 1});
  TaskSet set{.name = "ifeval", .group = "", .task = task, .items = {item, item, item}, .hash = ""};
  const auto r = results_of(
      set, {.log_probs = {}, .likeliest = {}, .written = {"Here it is:\n\"a\"", "\"a\"", "b, c"}, .judging = {}});
  EXPECT_EQ(r["samples"][0]["prompt_level_strict_acc"], 0);
  EXPECT_EQ(r["samples"][0]["prompt_level_loose_acc"], 1) << "without its first line";
  EXPECT_DOUBLE_EQ(r["metrics"]["inst_level_strict_acc"]["value"], 3 / 6.0);
  EXPECT_DOUBLE_EQ(r["metrics"]["inst_level_loose_acc"]["value"], 4 / 6.0);
  EXPECT_DOUBLE_EQ(r["metrics"]["prompt_level_strict_acc"]["value"], 1 / 3.0);
  // Hits 1, 2, 0 of two each: 0, 1, -1 beside the ratio; sqrt(2 * 3 / 2) / 6.
  EXPECT_DOUBLE_EQ(r["metrics"]["inst_level_strict_acc"]["stderr"], std::sqrt(3.0) / 6);
}

TEST(WrittenTasks, AnswersAreFoundAsTheHarnessFindsThem) {
  EXPECT_EQ(stated_answer("Let's see.\nSo the answer is (B).\nthe answer is (C)."), "(B)");
  EXPECT_EQ(stated_answer("So the answer is False"), "Fals") << "one character is taken for the full stop";
  EXPECT_EQ(stated_answer("the answer is \nno"), "[invalid]");
  EXPECT_EQ(stated_answer("none"), "[invalid]");
  EXPECT_TRUE(is_refusal("I\xe2\x80\x99m sorry, but I can't help with that."));
  EXPECT_FALSE(is_refusal("Sure: first, take a bow."));
}

TEST(WrittenTasks, RefusalsAreCountedOfThoseThatShouldBeAndOfTheOthers) {
  const Task task = find_task("--tasks", "refusals");
  TaskSet set{.name = "refusals", .group = "", .task = task, .items = {}, .hash = ""};
  const std::string where = "t";
  for (const char* row : {R"({"prompt": "a", "refuse": true})", R"({"prompt": "b", "refuse": true})",
                          R"({"prompt": "c", "refuse": false})"})
    set.items.push_back(read_item(task, {WrittenJson::parse(row), where, 1}));
  const auto m = results_of(set, {.log_probs = {},
                                  .likeliest = {},
                                  .written = {"I cannot do that.", "Sure!", "I won't."},
                                  .judging = {}})["metrics"];
  EXPECT_DOUBLE_EQ(m["acc"]["value"], 1 / 3.0);
  EXPECT_DOUBLE_EQ(m["refused"]["value"], 0.5);
  EXPECT_DOUBLE_EQ(m["over_refused"]["value"], 1);
}

TEST(WrittenTasks, ARepliesBadWordsAreThoseOfTheList) {
  TempDir dir;
  spill(dir / "words.txt", "darn\nold fool\n");
  const Judging judging{.python = "", .bad_words = make_bad_words_rule({.file = (dir / "words.txt").string()})};
  EXPECT_TRUE(judging.is_bad("Oh DARN it"));
  EXPECT_TRUE(judging.is_bad("you old fool"));
  EXPECT_FALSE(judging.is_bad("darning a sock"));
}

// Three answers with their scores, and the file with the results.
nlohmann::ordered_json judged(const AnswerJudge& judge, const std::filesystem::path& file) {
  const TaskSet set{
      .name = "toxicity", .group = "", .task = find_task("--tasks", "toxicity"), .items = {{}, {}, {}}, .hash = "h"};
  const auto r = results_of(set, {.log_probs = {},
                                  .likeliest = {},
                                  .written = {"a", "b", "c"},
                                  .scores = {-1, 0.5, 2},
                                  .judging = {.python = "", .bad_words = nullptr, .judge = judge}});
  spill(file, with_groups({r}).dump());
  return r;
}

TEST(WrittenTasks, AJudgesScoresBeyondTheBoundAreToxic) {
  TempDir dir;
  const auto a = judged({.weights = "w", .bound = 0.5, .below = true}, dir / "a.json"),
             b = judged({.weights = "w", .bound = 0.5, .below = false}, dir / "b.json");
  EXPECT_EQ(a["samples"][0]["judged_toxic"], 1);
  EXPECT_EQ(a["samples"][1]["judged_toxic"], 0) << "the bound itself is within";
  EXPECT_DOUBLE_EQ(a["metrics"]["judged_toxic"]["value"], 1 / 3.0);
  EXPECT_DOUBLE_EQ(a["metrics"]["score"]["value"], 0.5);
  EXPECT_DOUBLE_EQ(a["metrics"]["score"]["stderr"], std::sqrt(2 * 1.5 * 1.5 / 2 / 3));
  EXPECT_FALSE(a["metrics"].contains("toxic")) << "there is no list of words";
  EXPECT_EQ(b["samples"][0]["judged_toxic"], 0);
  EXPECT_EQ(b["samples"][2]["judged_toxic"], 1);
  EXPECT_EQ(b["judge"].dump(), R"({"weights":"w","toxic_above":0.5})");
  EXPECT_EQ(compare_results(dir / "a.json", dir / "a.json").size(), 2u);
  for (const AnswerJudge& other :
       {AnswerJudge{"w", 0.5, false}, AnswerJudge{"w", 0.6, true}, AnswerJudge{"v", 0.5, true}}) {
    judged(other, dir / "b.json");
    EXPECT_SAYS(error_of<FileError>([&] { compare_results(dir / "a.json", dir / "b.json"); }),
                "toxicity: the answers were judged by other reward models, or other bounds");
  }
}

TEST(WrittenTasks, WordingsOfAQuestionAreComparedByTheirChoices) {
  const Task task = find_task("--tasks", "perturbed");
  const WrittenJson row =
      WrittenJson::parse(R"({"queries": ["Is it?", "Say: is it?"], "choices": ["yes", "no", "oh"], "gold": 1})");
  const std::string where = "t";
  const TaskItem item = read_item(task, {row, where, 1});
  EXPECT_EQ(item.contexts[4], "Say: is it?");
  EXPECT_EQ(item.choices[4], " no");
  const TaskSet set{.name = "perturbed", .group = "", .task = task, .items = {item, item}, .hash = ""};
  const auto r = results_of(set, {.log_probs = {{-3, -1, -2, -1, -2, -3}, {-3, -1, -2, -9, -2, -3}},
                                  .likeliest = {},
                                  .written = {},
                                  .judging = {}});
  EXPECT_EQ(r["samples"][0]["consistent"], 0);
  EXPECT_EQ(r["metrics"]["acc"]["value"], 0.75);
  EXPECT_EQ(r["metrics"]["worst"]["value"], 0.5);
  EXPECT_EQ(r["metrics"]["consistent"]["value"], 0.5);
}

// As BIG-Bench Hard is: all rows of a file in one object, and a text of solved examples for each file.
TEST(WrittenTasks, ATextComesBeforeTheQuestionsOfItsFile) {
  TempDir dir;
  std::filesystem::create_directories(dir / "bbh");
  std::filesystem::create_directories(dir / "cot");
  spill(dir / "bbh/navigate.json", R"({"canary": "x", "examples": [{"input": "Left?", "target": "No"},
      {"input": "Right?", "target": "Yes"}]})");
  std::string one_line = testing::slurp(dir / "bbh/navigate.json");
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  spill(dir / "bbh/navigate.json", one_line);
  spill(dir / "cot/navigate.txt",
        "canary\n-----\nFind the way.\n\nQ: Up?\nA: Let's think step by step.\nSo the answer is No.");
  const auto byte = open_tokenizer("byte", "", 257);
  QuestionsSpec spec{
      .tasks = {"bbh=" + (dir / "bbh").string()}, .fewshot_from = {"bbh=" + (dir / "cot").string()}, .window = 4096};
  const std::vector<Asked> asked = ask(find_tasks(spec), spec, *byte);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].set.name, "bbh_navigate");
  ASSERT_EQ(asked[0].open.prompts.size(), 2u);
  EXPECT_EQ(byte->decode(asked[0].open.prompts[1], Tokenizer::Specials::kShown),
            "Find the way.\n\nQ: Up?\nA: Let's think step by step.\nSo the answer is No.\n\n"
            "Q: Right?\nA: Let's think step by step.\n");
  EXPECT_EQ(asked[0].set.items[1].row, 2);
  spill(dir / "bbh/other.json", one_line);
  EXPECT_SAYS(error_of<ConfigError>([&] { ask(find_tasks(spec), spec, *byte); }), "holds no bbh_other");
}

TEST(Sandbox, AProgramRunsToItsEndOrIsHeldBack) {
  const std::string python = find_python();
  if (python.empty()) GTEST_SKIP() << "there is no python3";
  TempDir dir;
  const std::string file = (dir / "file").string();
  spill(file, "kept");
  const std::string tries = fmt::format(R"(import math, os, socket, subprocess, threading
file = {:?}
assert math.gcd(4, 6) == 2 and open(file).read() == 'kept'
for name, forbidden in enumerate([
        lambda: open(file, 'a'), lambda: open(file + '2', 'x'), lambda: os.remove(file),
        lambda: os.rename(file, file + '2'), lambda: os.truncate(file, 0), lambda: os.mkdir(file + '2'),
        lambda: os.symlink(file, file + '2'), lambda: os.chmod(file, 0), lambda: os.utime(file), socket.socket,
        os.fork, lambda: subprocess.run(['true']), threading.Thread(target=print).start,
        lambda: os.kill(os.getppid(), 0)]):
    try:
        forbidden()
    except (PermissionError, RuntimeError):
        continue
    raise SystemExit(name)
)",
                                        file);
  EXPECT_TRUE(runs_to_its_end(python, tries, {.seconds = 30}));
  EXPECT_EQ(testing::slurp(file), "kept");
  for (const char* program : {"assert 1 == 2", "import os\nos._exit(0)", "x = ("})
    EXPECT_FALSE(runs_to_its_end(python, program, {.seconds = 30})) << program;
  EXPECT_FALSE(runs_to_its_end(python, "while True: pass", {.seconds = 0.1}));
  EXPECT_FALSE(runs_to_its_end(python, "x = bytearray(1 << 30)", {.seconds = 30})) << "of memory there is less";
}

TEST(WrittenTasks, HumanevalRunsTheTestsOfItsRow) {
  const std::string python = find_python();
  if (python.empty()) GTEST_SKIP() << "there is no python3";
  const Task task = find_task("--tasks", "humaneval");
  const WrittenJson row = {{"task_id", "t/0"},
                           {"prompt", "def add(a, b):\n    \"\"\"The sum.\"\"\"\n"},
                           {"entry_point", "add"},
                           {"test", "def check(candidate):\n    assert candidate(1, 2) == 3\n"}};
  const std::string where = "t";
  const TaskItem item = read_item(task, {row, where, 1});
  const TaskSet set{.name = "humaneval", .group = "", .task = task, .items = {item, item}, .hash = ""};
  const auto r = results_of(set, {.log_probs = {},
                                  .likeliest = {},
                                  .written = {"    return a + b\n", "    return a - b\n"},
                                  .judging = {.python = python, .bad_words = nullptr}});
  EXPECT_EQ(r["samples"][0]["pass@1"], 1);
  EXPECT_EQ(r["samples"][1]["pass@1"], 0);
}

// Of all ways to take k of n answers, the share that takes a right one.
TEST(PassAtK, IsTheShareOfSubsetsWithARightAnswer) {
  for (uint32_t n = 1; n <= 9; ++n)
    for (uint32_t k = 1; k <= n; ++k)
      for (uint32_t c = 0; c <= n; ++c) {
        int all = 0, with_right = 0;
        for (uint32_t subset = 0; subset < 1U << n; ++subset) {
          if (std::popcount(subset) != int(k)) continue;
          ++all;
          with_right += (subset & ((1U << c) - 1)) != 0;  // the first c are right
        }
        EXPECT_NEAR(pass_at_k(n, c, k), double(with_right) / all, 1e-14) << n << " " << c << " " << k;
      }
  EXPECT_NEAR(pass_at_k(1000, 300, 1), 0.3, 1e-12);
  EXPECT_EQ(pass_at_k(1000, 500, 500), 1) << "C(1000, 500) is no double that is exact";
  EXPECT_NEAR(pass_at_k(1000, 1, 500), 0.5, 1e-12);
}

void does_the_written_pass(const TaskItem&, const std::string& written, const Judging&, Scores& to) {
  to["passed"] = int(written == "right");
}

TEST(PassAtK, IsCountedOfEachQuestionsOwnAnswers) {
  Task task = find_task("--tasks", "humaneval");
  task.judge = does_the_written_pass;
  const TaskSet set{.name = "humaneval", .group = "", .task = task, .items = {{}, {}, {}}, .hash = "h"};
  const std::string yes = "right", no = "wrong";
  const auto r = results_of(set, {.log_probs = {},
                                  .likeliest = {},
                                  .written = {yes, no, no, no, yes, yes, no, no, no},
                                  .samples = 3,
                                  .judging = {.python = "", .pass_at = {1, 2}, .bad_words = nullptr}});
  EXPECT_EQ(r["samples"][1]["passed"].dump(), "[0,1,1]");
  EXPECT_EQ(r["samples"][1]["written"][0], no);
  EXPECT_DOUBLE_EQ(r["samples"][0]["pass@2"], 2 / 3.0);
  const double n = 3, mean = (2 / 3.0 + 1 + 0) / n;
  EXPECT_DOUBLE_EQ(r["metrics"]["pass@1"]["value"], 1 / 3.0);
  EXPECT_DOUBLE_EQ(r["metrics"]["pass@2"]["value"], mean);
  const auto square = [](double x) { return x * x; };
  const double squares = square(2 / 3.0 - mean) + square(1 - mean) + square(mean);
  EXPECT_DOUBLE_EQ(r["metrics"]["pass@2"]["stderr"], std::sqrt(squares / (n - 1) / n));
  EXPECT_SAYS(table_of(with_groups({r})), "pass@2");
}

}  // namespace
}  // namespace weft
