// `weft eval --tasks`: benchmarks from the files that users have.
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "weft/apps/data_lines.h"
#include "weft/apps/eval_judge.h"
#include "weft/apps/eval_ranks.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/rng.h"
#include "weft/models/fingerprint.h"
#include "weft/models/peft.h"
#include "weft/tasks/compare.h"
#include "weft/tasks/questions.h"
#include "weft/train/write_answers.h"

namespace weft {
namespace {

using OrderedJson = nlohmann::ordered_json;

static_assert(kMostSamples <= kMostAnswersOfQuestion);

uint64_t seed_of(const EvalOptions& o) { return uint64_t(o.seed.value_or(1234)); }

// Whether answers are drawn, and can be.
void check_samples(const EvalOptions& o, const FoundTasks& found) {
  const bool any = std::any_of(found.places.begin(), found.places.end(), [](auto& p) { return p.task.passes; });
  const int64_t most = *std::max_element(o.pass_at.begin(), o.pass_at.end());
  const std::pair<const char*, bool> given[] = {{"--samples", o.samples > 1},
                                                {"--temperature", o.temperature > 0},
                                                {"--top-p", o.top_p < 1},
                                                {"--pass-at", most > 1}};
  for (const auto& [option, is] : given)
    if (is && !any) throw ConfigError(fmt::format("{}: has no effect without --tasks humaneval; leave it out", option));
  if (o.samples > 1 && (o.temperature == 0 || o.top_p == 0))
    throw ConfigError(
        fmt::format("--samples {}: with {} 0 all answers are the likeliest tokens, and the same; draw them, as with "
                    "--temperature 0.8, or leave --samples out",
                    o.samples, o.temperature == 0 ? "--temperature" : "--top-p"));
  if (o.top_p < 1 && o.temperature == 0)
    throw ConfigError("--top-p: has no effect at --temperature 0, where the likeliest token is taken; leave it out");
  if (most > o.samples)
    throw ConfigError(
        fmt::format("--pass-at {}: takes at least {} answers to each question, and --samples is {}; ask for as many, "
                    "or for a smaller k",
                    most, most, o.samples));
  if (o.seed && o.num_fewshot == 0 && o.temperature == 0)
    throw ConfigError(fmt::format(
        "--seed {}: has no effect: it chooses examples (--num-fewshot) and samples (--temperature)", *o.seed));
}

// All that the command asks a model, before there are ranks.
class TaskRun {
 public:
  TaskRun(const EvalOptions& o, const Measured& m)
      : o_(o), folder_(m.folder), model_(m.config.spec), layout_(m.layout), precision_(m.shape.precision) {
    const QuestionsSpec spec{.tasks = o.tasks,
                             .fewshot_from = o.fewshot_from,
                             .folder = o.tasks_dir,
                             .num_fewshot = o.num_fewshot,
                             .limit = o.limit,
                             .seed = seed_of(o),
                             .window = m.shape.seq_length,
                             .most_written = o.max_tokens.value_or(0)};
    const FoundTasks found = find_tasks(spec);
    if (o.max_tokens && !found.any_written())
      throw ConfigError(
          fmt::format("--max-tokens {}: has no effect without a task whose answer is written (gsm8k)", *o.max_tokens));
    check_samples(o, found);
    judging_ = judging_of(found);
    if (!o.judge.empty()) judge_.emplace(o.judge, m), judging_.judge = answer_judge();
    tokenizer_ = open_tokenizer(tokenizer_of_texts(o, m), m.folder, model_.vocab_size);
    asked_ = ask(found, spec, *tokenizer_);
    if (judge_) judge_->check(asked_);
    for (const std::string& note : truncation_notes(asked_, spec)) m.tell(note);
  }

  // Collective. Returns the results on the first rank, on others nothing.
  OrderedJson run(const ProcessMesh& mesh, const Evaluator::Spec& spec) const {
    std::vector<SetAnswers> answers(asked_.size());
    const std::vector<ScoredText> texts = all_texts(asked_);
    TextScores scores;
    if (!texts.empty()) scores = Evaluator(folder_, spec).scores(texts);
    share_out(scores, asked_, answers);
    if (any(&Asked::is_written)) {
      TextGenerator generator(folder_, generator_spec(spec.machine, mesh));
      for (size_t i = 0; i < asked_.size(); ++i)
        if (asked_[i].is_written()) write(generator, asked_[i], answers[i].written);
    }
    const int64_t cut = judge_ ? judge_->score(asked_, spec, answers) : 0;
    if (mesh.world->rank() != 0) return {};
    if (cut > 0)
      std::cerr << fmt::format(
          "note: --judge: {} texts are longer than the {} tokens that the judge sees at once, and "
          "lose their beginning (--seq-length)\n",
          cut, judge_->window());
    std::vector<OrderedJson> results;
    for (size_t i = 0; i < asked_.size(); ++i) {
      answers[i].judging = judging_;
      answers[i].samples = int64_t(samples_of(asked_[i]));
      results.push_back(results_of(asked_[i].set, answers[i]));
    }
    return with_groups(std::move(results));
  }

  // Of the generator, or of the judge that follows it.
  int64_t bytes(const Machine& machine, const ProcessMesh& mesh) const {
    if (!any(&Asked::is_written)) return 0;
    const int64_t generator = TextGenerator::measure(model_, generator_spec(machine, mesh)).total();
    return std::max(generator, judge_ ? judge_->bytes(machine, mesh) : 0);
  }

  bool finds_likeliest() const {
    return std::any_of(asked_.begin(), asked_.end(),
                       [](const Asked& a) { return a.set.task.kind == TaskKind::last_word; });
  }

 private:
  bool any(bool (Asked::*is)() const) const {
    return std::any_of(asked_.begin(), asked_.end(), [is](const Asked& a) { return (a.*is)(); });
  }

  // What answers are judged with, tried before there are answers.
  Judging judging_of(const FoundTasks& found) const {
    Judging judging;
    judging.pass_at = o_.pass_at;
    std::sort(judging.pass_at.begin(), judging.pass_at.end());
    judging.pass_at.erase(std::unique(judging.pass_at.begin(), judging.pass_at.end()), judging.pass_at.end());
    if (found.asks("humaneval")) judging.python = require_python("--tasks");
    const bool is_judged = !o_.bad_words.empty() || !o_.judge.empty();
    if (found.asks("toxicity") != is_judged)
      throw ConfigError(found.asks("toxicity")
                            ? "--tasks toxicity: --bad-words FILE says which words are, one a line; or --judge FOLDER "
                              "which reward model scores the answers"
                            : fmt::format("{}: has no effect without --tasks toxicity; leave it out",
                                          o_.judge.empty() ? "--bad-words" : "--judge"));
    if (!o_.judge.empty() && !o_.toxic_below && !o_.toxic_above)
      throw ConfigError(
          fmt::format("--judge {}: --toxic-below X says which scores mean that an answer is toxic: those below X; or "
                      "--toxic-above X, those above",
                      o_.judge));
    if (!o_.bad_words.empty()) judging.bad_words = make_bad_words_rule({.file = o_.bad_words});
    return judging;
  }

  AnswerJudge answer_judge() const {
    return {.weights = fingerprint_of_weights(judge_->folder()),
            .bound = o_.toxic_below ? *o_.toxic_below : *o_.toxic_above,
            .below = o_.toxic_below.has_value()};
  }

  size_t samples_of(const Asked& a) const { return a.set.task.passes ? size_t(o_.samples) : 1; }

  // By the likeliest tokens, or drawn: what question and sample say alone, on every layout.
  void write(TextGenerator& generator, const Asked& a, std::vector<std::string>& written) const {
    const Sampling how{.temperature = a.set.task.passes ? o_.temperature : 0,
                       .top_p = o_.top_p,
                       .seed = rng_key(seed_of(o_), a.set.name)};
    written = *write_answers(
        generator, a,
        {.tokenizer = *tokenizer_, .texts_at_once = o_.micro_batch_size, .how = how, .samples = samples_of(a)});
  }

  // The prompts' tokens of each batch, on each rank of dp; those of unequal lengths once.
  std::vector<std::vector<int64_t>> batches() const {
    std::set<std::vector<int64_t>> all;
    for (const Asked& a : asked_) {
      const auto batch = size_t(o_.micro_batch_size * layout_.dp);
      for_each_batch_of_prompts(a, batch, samples_of(a), [&](size_t, const std::vector<Tokens>& prompts) {
        for (int64_t rank = 0; rank < layout_.dp; ++rank) {
          std::vector<int64_t> tokens;
          const Run here = prompts_of(int64_t(prompts.size()), {layout_.dp, rank});
          for (int64_t i = here.first; i < here.end(); ++i) tokens.push_back(int64_t(prompts[size_t(i)].size()));
          if (!tokens.empty()) all.insert(tokens);
        }
      });
    }
    return {all.begin(), all.end()};
  }

  // Places for the longest prompts and answers of all sets.
  TextGenerator::Spec generator_spec(const Machine& machine, const ProcessMesh& mesh) const {
    TextGenerator::Text longest{.prompt = 1, .all = 2};
    for (const Asked& a : asked_)
      for (const Tokens& prompt : a.open.prompts) {
        longest.prompt = std::max(longest.prompt, int64_t(prompt.size()));
        longest.all = std::max(longest.all, int64_t(prompt.size()) + a.most_written);
      }
    const std::vector<TextGenerator::Text> texts(size_t(o_.micro_batch_size), longest);
    TextGenerator::Spec spec{
        .machine = machine, .precision = precision_, .texts = texts, .layout = layout_, .mesh = mesh};
    spec.layout.sequence_parallel = false;  // a pass may be of one token
    spec.later = batches();
    if (layout_.ep > 1) spec.others.assign(size_t(layout_.dp - 1), texts);
    return spec;
  }

  const EvalOptions& o_;
  const std::filesystem::path folder_;
  const ModelSpec model_;
  const Recipe::Parallel layout_;
  const Precision precision_;
  Judging judging_;
  std::optional<RewardJudge> judge_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<Asked> asked_;
};

OrderedJson with_settings(const EvalOptions& o, const std::string& weights, int64_t window,
                          const OrderedJson& results) {
  OrderedJson all{{"model", o.model},   {"weights", weights}, {"num_fewshot", o.num_fewshot},
                  {"seed", seed_of(o)}, {"limit", o.limit},   {"seq_length", window}};
  if (o.temperature > 0) all.update({{"samples", o.samples}, {"temperature", o.temperature}, {"top_p", o.top_p}});
  if (!o.judge.empty()) all["judge"] = o.judge;
  all.update(results);
  return all;
}

// What a model writes need not be UTF-8.
std::string dumped(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

// Newer results replace older ones. Another file of that name is somebody's, and stays.
void prepare_results(const std::string& output) {
  std::error_code none;
  const bool holds_something = std::filesystem::file_size(output, none) > 0 && !none;
  if (holds_something && std::filesystem::is_regular_file(output, none) && !is_results_file(output))
    throw ConfigError(
        fmt::format("--output {}: is there already, and holds no results that newer ones could replace; name another "
                    "file",
                    output));
  prepare_output("--output", output, true);
}

}  // namespace

int run_eval_tasks(const EvalOptions& o) {
  if (!o.data.empty())
    throw ConfigError(fmt::format("{}: no data is measured beside --tasks; leave one of them out", o.data[0]));
  if (!o.output.empty()) prepare_results(o.output);
  return run_eval_ranks(o, [&](const Measured& m) {
    const auto tasks = std::make_shared<TaskRun>(o, m);
    // By which an export knows that these are results of the same weights.
    const std::string weights = o.output.empty() ? "" : fingerprint_of_weights(m.folder);
    const auto run = [&o, tasks, weights](const ProcessMesh& mesh, const Evaluator::Spec& spec) {
      const OrderedJson scores = tasks->run(mesh, spec);
      if (mesh.world->rank() != 0) return;
      const OrderedJson results = with_settings(o, weights, spec.seq_length, scores);
      std::cout << (o.json ? dumped(results, -1) : table_of(results)) << std::flush;
      if (!o.output.empty()) write_file_durably(o.output, dumped(results, 1));
    };
    return EvalWork{run,
                    [tasks](const Machine& machine, const ProcessMesh& mesh) { return tasks->bytes(machine, mesh); },
                    tasks->finds_likeliest()};
  });
}

int run_eval_compare(const EvalOptions& o) {
  if (!o.model.empty()) throw ConfigError(fmt::format("{}: --compare takes two results files and no model", o.model));
  std::vector<std::string> left_out;
  const std::vector<Comparison> comparisons = compare_results(o.compare[0], o.compare[1], &left_out);
  for (const std::string& line : left_out) std::cerr << "note: not compared: " << line << "\n";
  if (!o.json) {
    std::cout << fmt::format("A: {}\nB: {}\n", o.compare[0], o.compare[1]) << to_text(comparisons);
    return kExitOk;
  }
  OrderedJson all = OrderedJson::array();
  for (const Comparison& c : comparisons)
    all.push_back({{"task", c.task},
                   {"metric", c.metric},
                   {"items", c.items},
                   {"a", c.a},
                   {"b", c.b},
                   {"difference", c.b - c.a},
                   {"stderr", c.error},
                   {"p", c.p}});
  std::cout << all.dump() << "\n";
  return kExitOk;
}

}  // namespace weft
