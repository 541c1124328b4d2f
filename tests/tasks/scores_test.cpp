// Tasks with a model: the scores of texts, and the whole command.
#include <cmath>
#include <set>

#include "apps/program.h"
#include "tasks/scored_models.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/tasks/sandbox.h"
#include "weft/train/evaluate.h"
#include "weft/train/generate_texts.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::score_of_share;
using testing::small_model;
using testing::spill;
using testing::TempDir;
using testing::weft;
using testing::write_judge_like_small_model;
using testing::write_judge_of_sevens;
using testing::write_sevens;
using EvalWords = std::vector<std::string>;
using EvalJson = nlohmann::json;

// The likeliest token behind these, and the next.
std::vector<int32_t> likeliest_behind(const std::vector<int32_t>& ids) {
  const Recipe recipe;
  const Machine machine = machine_for(recipe);
  TextGenerator generator(small_model(), {.machine = machine, .precision = kF32, .texts = {{.prompt = 8, .all = 9}}});
  const auto logits = generator.feed(generator.unfed(0, ids));
  const auto best = int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  return {best, (best + 1) % 512};
}

// Of unequal lengths, so that some share a window and some windows are left over for some ranks.
std::vector<ScoredText> some_texts() {
  std::vector<ScoredText> texts;
  for (int32_t i = 0; i < 11; ++i) {
    ScoredText text{.ids = {}, .scored = 1 + i % 4};
    for (int32_t t = 0; t < 5 + 3 * i % 17; ++t) text.ids.push_back((31 * i + 7 * t * t) % 512);
    texts.push_back(text);
  }
  texts.push_back({.ids = std::vector<int32_t>(33, 5), .scored = 32});  // all that a window holds
  texts.push_back({.ids = {1, 2, 3}, .scored = 0});
  for (const int32_t next : likeliest_behind({9, 8, 7})) texts.push_back({.ids = {9, 8, 7, next}, .scored = 1});
  return texts;
}

Machine machine_of(const Recipe::Parallel& layout) {
  Recipe recipe;
  recipe.parallel = layout;
  recipe.run.threads = 1;
  return machine_for(recipe);
}

fs::path model_with_experts() { return fs::path(testing::kSourceDir) / "tests/golden/mixtral"; }

TextScores scores_on(const Recipe::Parallel& layout, const std::vector<ScoredText>& texts,
                     const fs::path& model = small_model()) {
  Recipe recipe;
  recipe.parallel = layout;
  const Machine machine = machine_of(layout);
  TextScores scores;
  run_on_threads(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
    Evaluator evaluator(model, {.machine = machine,
                                .precision = kF32,
                                .seq_length = 32,
                                .micro_batch_size = 2,
                                .layout = layout,
                                .mesh = mesh,
                                .finds_likeliest = true});
    const TextScores here = evaluator.scores(texts);
    if (mesh.world->rank() == mesh.world->size() - 1) scores = here;
  });
  return scores;
}

double log_prob_of(std::span<const double> logits, int32_t token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - most);
  return logits[size_t(token)] - most - std::log(sum);
}

// Token by token, one text at a time: texts that share a window do not see each other.
TEST(TaskScores, AreThoseOfEachTextAlone) {
  const std::vector<ScoredText> texts = some_texts();
  const TextScores scores = scores_on({}, texts);
  size_t found_likeliest = 0;
  const Machine machine = machine_of({});
  TextGenerator generator(small_model(), {.machine = machine, .precision = kF32, .texts = {{.prompt = 1, .all = 40}}});
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto n = int64_t(texts[i].ids.size());
    double expected = 0;
    bool likeliest = true;
    for (int64_t t = 0; t + 1 < n; ++t) {
      const auto next = std::span(texts[i].ids).subspan(size_t(t), 1);
      const auto logits = generator.feed(t == 0 ? generator.unfed(0, next) : next);
      if (t + 1 < n - texts[i].scored) continue;
      const int32_t token = texts[i].ids[size_t(t + 1)];
      expected += log_prob_of(logits, token);
      likeliest &= logits[size_t(token)] == *std::max_element(logits.begin(), logits.end());
    }
    EXPECT_NEAR(scores.log_probs[i], expected, 1e-4) << i;
    EXPECT_EQ(scores.likeliest[i], likeliest) << i;
    found_likeliest += likeliest && texts[i].scored > 0;
  }
  EXPECT_GT(found_likeliest, 0u);
}

void expect_scores_of_one_rank(const std::vector<Recipe::Parallel>& layouts, const std::vector<ScoredText>& texts,
                               const fs::path& model) {
  const TextScores one = scores_on({}, texts, model);
  for (size_t l = 0; l < layouts.size(); ++l) {
    const TextScores many = scores_on(layouts[l], texts, model);
    ASSERT_EQ(many.log_probs.size(), one.log_probs.size());
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_NEAR(many.log_probs[i], one.log_probs[i], 1e-4) << "layout " << l << ", text " << i;
    EXPECT_EQ(many.likeliest, one.likeliest) << "layout " << l;
  }
}

TEST(TaskScores, AreTheSameOnEveryLayout) {
  expect_scores_of_one_rank({{.tp = 2}, {.pp = 2}, {.cp = 2}, {.dp = 2}, {.dp = 2, .tp = 2, .pp = 2}}, some_texts(),
                            small_model());
}

// Ranks of ep take part in each other's windows, also where they have none of their own.
TEST(TaskScores, OfExpertsOnRanksOfTheirOwnAreTheSame) {
  std::vector<ScoredText> texts = some_texts();
  expect_scores_of_one_rank({{.dp = 2, .ep = 2}, {.cp = 2, .ep = 2}}, texts, model_with_experts());
  texts.resize(1);
  expect_scores_of_one_rank({{.dp = 2, .ep = 2}}, texts, model_with_experts());
}

// Two stages take the places' prompts in portions of 400 rows, and these two at once: products of 308 rows need more
// room.
TEST(TaskScores, PromptsThatComeLaterArePlannedThoughTheyAreShorter) {
  Recipe recipe;
  recipe.parallel = {.pp = 2, .sequence_parallel = false};
  const Machine machine = machine_of(recipe.parallel);
  const std::vector<Tokens> prompts(2, Tokens(154, 7));
  const Sampling likeliest{.temperature = 0};
  const std::vector<TextGenerator::Text> places(8, {.prompt = 400, .all = 401});
  run_on_threads(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
    TextGenerator generator(small_model(), {.machine = machine,
                                            .precision = kF32,
                                            .texts = places,
                                            .layout = recipe.parallel,
                                            .mesh = mesh,
                                            .later = {{154, 154}}});
    EXPECT_EQ(generate_texts(generator, {.prompts = prompts, .how = likeliest, .max_tokens = 1}).size(), 2u);
  });
}

// A folder with a few rows for each kind of task.
class TaskCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string piqa, lambada, gsm8k;
    for (int i = 0; i < 5; ++i) {
      piqa += fmt::format(R"({{"goal": "do {}", "sol1": "a{}", "sol2": "bb", "label": {}}})", i, i * i, i % 2) + "\n";
      lambada += fmt::format(R"({{"text": "word {} of z{}"}})", i, i) + "\n";
      gsm8k += fmt::format(R"({{"question": "{} + 1?", "answer": "so #### {}"}})", i, i + 1) + "\n";
    }
    spill(dir_ / "piqa.jsonl", piqa);
    spill(dir_ / "lambada.jsonl", lambada);
    spill(dir_ / "gsm8k.jsonl", gsm8k);
  }
  EvalWords words(const EvalWords& more, const fs::path& model = small_model()) const {
    EvalWords all{"eval", model.string(), "--tokenizer",        "byte",  "--threads",
                  "1",    "--tasks-dir",  dir_.path().string(), "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  EvalJson results(const EvalWords& more, const fs::path& model = small_model()) const {
    const Finished f = weft(words(more, model));
    EXPECT_EQ(f.status, 0) << f.err;
    return EvalJson::parse(f.out);
  }

  TempDir dir_;
};

// Equal in all that is counted or written, near in what is a log-probability.
void expect_same(const EvalJson& a, const EvalJson& b, const std::string& where) {
  if (a.is_number_float()) {
    EXPECT_NEAR(a.get<double>(), b.get<double>(), 1e-3 * (1 + std::abs(a.get<double>()))) << where;
  } else if (a.is_structured()) {
    ASSERT_EQ(a.size(), b.size()) << where;
    const auto flat = a.items();
    for (const auto& [key, value] : flat)
      expect_same(value, a.is_array() ? b[std::stoul(key)] : b.at(key), where + "/" + key);
  } else {
    EXPECT_EQ(a, b) << where;
  }
}

TEST_F(TaskCommand, SaysTheSameOnLayouts) {
  const EvalWords tasks{"--tasks", "piqa,lambada",       "gsm8k", "--max-tokens", "8", "--num-fewshot",
                        "1",       "--micro-batch-size", "2"};
  const EvalJson one = results(tasks);
  ASSERT_EQ(one["results"].size(), 3u);
  EXPECT_EQ(one["results"][0]["samples"].size(), 5u);
  EXPECT_EQ(one["results"][2]["samples"][1]["gold"], "2");
  for (const char* layout : {"parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "parallel.cp=2"}) {
    EvalWords words = tasks;
    words.insert(words.begin(), layout);
    expect_same(one, results(words), layout);
  }
}

// Five prompts in batches of two for each of two ranks: at last one of them writes, and the other lends its experts.
TEST_F(TaskCommand, OfExpertsOnRanksOfTheirOwnSaysTheSame) {
  const EvalWords tasks{"--tasks", "piqa,gsm8k", "--max-tokens", "4", "--micro-batch-size", "2"};
  const EvalJson one = results(tasks, model_with_experts());
  ASSERT_EQ(one["results"].size(), 2u);
  for (const char* other : {"parallel.dp=2", "parallel.cp=2"}) {
    EvalWords words = tasks;
    words.insert(words.begin(), {other, "parallel.ep=2"});
    expect_same(one, results(words, model_with_experts()), other);
  }
}

TEST_F(TaskCommand, AJudgeSaysTheSameOnLayouts) {
  write_judge_like_small_model(dir_ / "judge");
  spill(dir_ / "toxicity.jsonl", "{\"prompt\": \"You\"}\n{\"prompt\": \"Say it\"}\n{\"prompt\": \"7\"}\n");
  EvalWords words{"--tasks",       "toxicity", "--max-tokens", "8", "--micro-batch-size", "2",
                  "--toxic-below", "0",        "--judge"};
  words.push_back((dir_ / "judge").string());
  const EvalJson one = results(words);
  EXPECT_NE(one["results"][0]["samples"][1]["score"], one["results"][0]["samples"][0]["score"]);
  for (const char* layout : {"parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "parallel.cp=2"}) {
    words.insert(words.begin(), layout);
    expect_same(one, results(words), layout);
    words.erase(words.begin());
  }
}

TEST_F(TaskCommand, AJudgeScoresPromptAndAnswerAtTheirLastToken) {
  write_sevens(dir_ / "sevens");
  write_judge_of_sevens(dir_ / "judge");
  spill(dir_ / "toxicity.jsonl", R"({"prompt": "a"}
{"prompt": "77"}
)" + EvalJson{{"prompt", std::string(70, '7')}}.dump());
  const auto judged = [&](const std::string& most) {
    Finished f = weft({"eval", (dir_ / "sevens").string(), "--threads", "1", "--tasks", "toxicity", "--tasks-dir",
                       dir_.path().string(), "--judge", (dir_ / "judge").string(), "--toxic-above", "1.5",
                       "--max-tokens", most, "--json"});
    EXPECT_EQ(f.status, 0) << f.err;
    return f;
  };
  const Finished f = judged("6");
  const EvalJson all = EvalJson::parse(f.out)["results"][0];
  ASSERT_EQ(all["samples"][0]["written"], " 7 7 7");
  const double expected[] = {score_of_share(3, 8), score_of_share(5, 9),  // with what ends a text
                             score_of_share(57 + 3, 64)};                 // as much of it as a window holds
  double mean = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(all["samples"][i]["score"].get<double>(), expected[i], 1e-5) << i;
    EXPECT_EQ(all["samples"][i]["judged_toxic"], expected[i] > 1.5 ? 1 : 0) << i;
    mean += expected[i] / 3;
  }
  EXPECT_NEAR(all["metrics"]["score"]["value"].get<double>(), mean, 1e-5);
  EXPECT_SAYS(f.err, "--judge: 1 texts are longer than the 64 tokens that the judge sees at once");
  const EvalJson blank = EvalJson::parse(judged("1").out)["results"][0]["samples"][1];
  EXPECT_EQ(blank["written"], " ");
  EXPECT_NEAR(blank["score"].get<double>(), score_of_share(2, 2), 1e-5) << "that of the prompt";
}

TEST_F(TaskCommand, WordsAndAnswersAreJudgedByWhatTheModelWrites) {
  write_sevens(dir_ / "sevens");
  spill(dir_ / "lambada.jsonl", R"({"text": "a word of 7"}
{"text": "of z"}
{"text": "two of them are 77"}
{"text": "or 7"}
)");
  spill(dir_ / "gsm8k.jsonl", R"({"question": "3 + 4?", "answer": "#### 7"}
{"question": "3 + 5?", "answer": "#### 8"}
)");
  const Finished f = weft({"eval", (dir_ / "sevens").string(), "--tokenizer", "byte", "--threads", "1", "--tasks-dir",
                           dir_.path().string(), "--tasks", "lambada,gsm8k", "--max-tokens", "6", "--json"});
  ASSERT_EQ(f.status, 0) << f.err;
  const EvalJson all = EvalJson::parse(f.out)["results"];
  const std::vector<int> right{1, 0, 0, 1};
  for (size_t i = 0; i < right.size(); ++i) EXPECT_EQ(all[0]["samples"][i]["acc"], right[i]) << i;
  const double unlikely = -10 * std::sqrt(8.0);
  EXPECT_NEAR(all[0]["samples"][0]["log_prob"].get<double>(), 0, 1e-6);
  EXPECT_NEAR(all[0]["samples"][1]["log_prob"].get<double>(), unlikely, 1e-2);
  EXPECT_NEAR(all[0]["samples"][2]["log_prob"].get<double>(), unlikely, 1e-2);
  EXPECT_NEAR(all[0]["metrics"]["perplexity"]["value"].get<double>(), std::exp(-unlikely / 2), 1e4);
  EXPECT_EQ(all[1]["samples"][0]["written"], " 7 7 7");
  EXPECT_EQ(all[1]["metrics"]["flexible_extract"]["value"], 0.5);
  EXPECT_EQ(all[1]["metrics"]["strict_match"]["value"], 0);
}

// A comment passes where what is written behind it is text of one line.
TEST_F(TaskCommand, SamplesAreThoseOfQuestionAndNumberAlone) {
  if (find_python().empty()) GTEST_SKIP() << "there is no python3";
  std::string rows;
  for (const char* prompt : {"# a", "# a"})
    rows += EvalJson{{"prompt", prompt}, {"entry_point", "len"}, {"test", "def check(c):\n    c('')"}}.dump() + "\n";
  spill(dir_ / "humaneval.jsonl", rows);
  const auto drawn = [&](const EvalWords& more) {
    EvalWords all{"--tasks", "humaneval", "--max-tokens", "3", "--temperature", "1", "--output"};
    all.insert(all.end(), more.begin(), more.end());
    return results(all);
  };
  const std::string a = (dir_ / "a.json").string(), b = (dir_ / "b.json").string();
  const EvalJson two = drawn({a, "--samples", "2", "--pass-at", "2,1", "--micro-batch-size", "1", "parallel.dp=2"});
  EXPECT_EQ(two["samples"], 2);
  EXPECT_EQ(two["temperature"], 1);
  const EvalJson one = drawn({b});
  std::set<std::string> different;
  for (const size_t i : {0, 1}) {
    const EvalJson &sample = two["results"][0]["samples"][i], &alone = one["results"][0]["samples"][i];
    const int passed = sample["passed"][0].get<int>() + sample["passed"][1].get<int>();
    EXPECT_EQ(sample["pass@1"], passed / 2.0);
    EXPECT_EQ(sample["pass@2"], passed > 0 ? 1 : 0);
    for (const EvalJson& text : sample["written"]) different.insert(text);
    EXPECT_EQ(alone["written"], sample["written"][0]);
    EXPECT_EQ(alone["pass@1"], sample["passed"][0]);
  }
  EXPECT_EQ(different.size(), 4u) << "questions and samples draw apart";
  const Finished f = weft({"eval", "--compare", a, b});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "pass@1");
  EXPECT_SAYS(f.err, "humaneval pass@2: only in ");
}

TEST_F(TaskCommand, WritesAFileThatIsComparedWithAnother) {
  const std::string a = (dir_ / "a.json").string(), b = (dir_ / "b.json").string();
  const Finished table = weft({"eval", small_model().string(), "--tokenizer", "byte", "--tasks",
                               "piqa=" + (dir_ / "piqa.jsonl").string(), "--output", a});
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_SAYS(table.out, "task   items  metric");
  EXPECT_SAYS(table.out, "acc_norm");
  results({"--tasks", "piqa", "--num-fewshot", "2", "--output", b});
  const Finished f = weft({"eval", "--compare", a, b});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "B - A");
  results({"--tasks", "piqa", "--limit", "3", "--output", b});
  EXPECT_SAYS(weft({"eval", "--compare", a, b}).err, "are of other questions");
}

// Newer results may replace older ones; what else has the name of the output stays.
TEST_F(TaskCommand, ReplacesResultsAloneByItsOutput) {
  const std::string old = R"({"notes": "of what was measured"})";
  testing::spill(dir_ / "notes.json", old);
  testing::spill(dir_ / "empty.json", "");
  const auto output = [&](const std::string& name) {
    return weft({"eval", small_model().string(), "--tokenizer", "byte", "--tasks",
                 "piqa=" + (dir_ / "piqa.jsonl").string(), "--output", (dir_ / name).string()});
  };
  const Finished f = output("notes.json");
  EXPECT_EQ(f.status, 2);
  EXPECT_EQ(f.out, "");
  EXPECT_SAYS(f.err, "notes.json: is there already, and holds no results that newer ones could replace");
  EXPECT_EQ(testing::slurp(dir_ / "notes.json"), old);
  for (int times = 0; times < 2; ++times) EXPECT_EQ(output("empty.json").status, 0);
}

TEST_F(TaskCommand, AnExportMayRequireAResultOfTheSameWeights) {
  const std::string file = (dir_ / "results.json").string(), gguf = (dir_ / "model.gguf").string();
  write_sevens(dir_ / "sevens");
  results({"--tasks", "piqa", "--output", file});
  const auto exported = [&](const fs::path& model, const EvalWords& more) {
    EvalWords all{"export", model.string(), "--gguf", gguf, "--tokenizer", "none", "--require"};
    all.insert(all.end(), more.begin(), more.end());
    return weft(all);
  };
  const std::vector<std::pair<EvalWords, std::string>> cases = {
      {{"piqa.acc > 1", "--results", file}, "piqa.acc > 1 is required, and it is 0."},
      {{"piqa.acc >= 0", "piqa.acc > 1", "--results", file}, "piqa.acc > 1 is required"},
      {{"piqa.bleu >= 0", "--results", file}, "there is no result piqa.bleu; there are piqa.acc, piqa.acc_norm"},
      {{"piqa.acc"}, "--require \"piqa.acc\": expected a result, one of >=, >, <= and <"},
      {{"piqa.acc >= 0"}, "is no checkpoint in the folder of a run; name the file that has its results"}};
  for (const auto& [words, says] : cases) {
    const Finished f = exported(small_model(), words);
    EXPECT_NE(f.status, 0) << says;
    EXPECT_SAYS(f.err, says);
    EXPECT_FALSE(fs::exists(gguf)) << says;
  }
  EXPECT_SAYS(exported(dir_ / "sevens", {"piqa.acc >= 0", "--results", file}).err, "is not of the weights of");
  const Finished f = exported(small_model(), {"piqa.acc >= 0", "--results", file});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(fs::exists(gguf));
}

TEST_F(TaskCommand, WhatCannotBeScoredIsRefusedByName) {
  spill(dir_ / "copa.jsonl", R"({"query": "a", "choices": ["b", "c"], "gold": 2})");
  spill(dir_ / "toxicity.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \" \"}\n");
  const fs::path golden = fs::path(testing::kSourceDir) / "tests/golden/reward-model";
  const std::string toxic = "toxicity=" + (dir_ / "toxicity.jsonl").string(), judge = (dir_ / "judge").string();
  write_judge_of_sevens(judge);
  fs::create_directories(dir_ / "other");
  for (const char* name : {"config.json", "model.safetensors"}) fs::copy_file(golden / name, dir_ / "other" / name);
  spill(dir_ / "other/tokenizer.json", byte_tokenizer_json());
  const auto judged_by = [&](const fs::path& folder, const EvalWords& more = {}) {
    EvalWords all{"--tasks", toxic, "--max-tokens", "4", "--toxic-below", "0", "--judge", folder.string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string code = "humaneval=" + (dir_ / "piqa.jsonl").string();
  const std::vector<std::pair<EvalWords, std::string>> cases = {
      {{"--tasks", "copa"}, "copa.jsonl: line 1: \"gold\": expected the number of the right choice, from 0 to 1"},
      {{"--tasks", "piqua"}, "did you mean piqa?"},
      {{"--tasks", "piqa", "--num-fewshot", "5"}, "piqa has only 4 other rows"},
      {{"--tasks", "piqa", "--fewshot-from", "copa=x"}, "--fewshot-from copa: there is no x"},
      {{"--tasks", "gsm8k", "--max-tokens", "256"}, "the model sees 256 tokens at once"},
      {{"x.txt", "--tasks", "piqa"}, "no data is measured beside --tasks"},
      {{"--tasks", "piqa", "x.txt"}, "--tasks x.txt: there is no such task"},
      {{"--tasks", "toxicity=" + (dir_ / "piqa.jsonl").string()}, "--bad-words FILE says which words are"},
      {{"--tasks", "piqa", "--bad-words", "x"}, "--bad-words: has no effect"},
      {{"--tasks", "piqa", "--judge", "x", "--toxic-below", "0"}, "--judge: has no effect without --tasks toxicity"},
      {{"--tasks", toxic, "--judge", judge}, "--toxic-below X says which scores mean that an answer is toxic"},
      {{"--tasks", toxic, "--toxic-below", "0"}, "--judge"},
      {judged_by(small_model()), "is no reward model, but one that writes text; train one of it by train.objective"},
      {judged_by(golden), "holds no tokenizer, so that it cannot read answers; put the one"},
      {judged_by(dir_ / "other"), "the tokenizer (byte: 256 bytes and the end of a document) has 257 ids, the model's"},
      {judged_by(judge, {"parallel.pp=2"}), "--judge " + judge + ": parallel.pp = 2 cannot run"},
      {judged_by(judge), "toxicity.jsonl: line 2: \"prompt\": is empty"},
      {{"--tasks", "piqa", "--max-batches", "2"}, "--max-batches"},
      {{"--tasks", "piqa", "parallel.tp=7"}, "parallel.tp = 7 cannot run"},
      {{"--tasks", "piqa", "--max-tokens", "3"}, "--max-tokens 3: has no effect"},
      {{"--tasks", "piqa", "--seed", "3"}, "--seed 3: has no effect"},
      {{"--tasks", "piqa", "--samples", "3"}, "--samples: has no effect without --tasks humaneval"},
      {{"--tasks", "piqa", "--temperature", "0.5"}, "--temperature: has no effect without --tasks humaneval"},
      {{"--tasks", code, "--samples", "0"}, "--samples"},
      {{"--tasks", code, "--samples", "3"}, "--samples 3: with --temperature 0 all answers are"},
      {{"--tasks", code, "--samples", "3", "--temperature", "1", "--top-p", "0"}, "with --top-p 0 all answers are"},
      {{"--tasks", code, "--top-p", "0.9"}, "--top-p: has no effect at --temperature 0"},
      {{"--tasks", code, "--pass-at", "1,10", "--samples", "9", "--temperature", "1"},
       "--pass-at 10: takes at least 10 answers to each question, and --samples is 9"},
      {{"--limit", "2"}, "--tasks"},
      {{"--tasks", "piqa", "--output", dir_.path().string()}, dir_.path().string()},
  };
  for (const auto& [more, says] : cases) {
    const Finished f = weft(words(more));
    EXPECT_NE(f.status, 0) << says;
    EXPECT_SAYS(f.err, says);
    EXPECT_EQ(f.out, "");
  }
}

}  // namespace
}  // namespace weft
