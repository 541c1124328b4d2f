// `weft eval --tasks`: benchmarks from the files that users have.
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "weft/apps/data_lines.h"
#include "weft/apps/eval_ranks.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tasks/compare.h"
#include "weft/tasks/prompts.h"
#include "weft/tasks/results.h"
#include "weft/train/generate_texts.h"

namespace weft {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Where a written answer ends, beside the end of a document: as in the harness.
constexpr const char* kStops[] = {"Question:", "</s>", "<|im_end|>"};

// A set, with what the model is asked for it.
struct Asked {
  TaskSet set;
  TaskTexts scored;    // of all kinds but number
  AnswerPrompts open;  // of number, and of last_word

  bool is_scored() const { return set.task.kind != TaskKind::number; }
  bool is_written() const { return set.task.kind != TaskKind::choices; }
  // The continuation that an item of last_word asks for.
  std::span<const int32_t> wanted(size_t item) const {
    const ScoredText& text = scored.texts[item];
    return std::span(text.ids).last(size_t(text.scored));
  }
  // The most tokens that are written behind a prompt.
  int64_t most_tokens(size_t item, int64_t of_answer) const {
    return set.task.kind == TaskKind::number ? of_answer : scored.texts[item].scored;
  }
};

// All that the command asks a model, before there are ranks.
class TaskRun {
 public:
  TaskRun(const EvalOptions& o, const Measured& m)
      : o_(o),
        folder_(m.folder),
        model_(m.config.spec),
        layout_(m.layout),
        precision_(m.shape.precision),
        tell_(m.tell),
        most_written_(o.max_tokens.value_or(256)) {
    const std::vector<TaskPlace> places = find_task_files({"--tasks", o.tasks}, o.tasks_dir);
    const std::vector<TaskPlace> examples = find_task_files({"--fewshot-from", o.fewshot_from}, {});
    for (const TaskPlace& e : examples)
      if (o.num_fewshot == 0 ||
          std::none_of(places.begin(), places.end(), [&](const TaskPlace& p) { return p.task.name == e.task.name; }))
        throw ConfigError(fmt::format("--fewshot-from {}: has no effect without --tasks {} and --num-fewshot",
                                      e.task.name, e.task.name));
    if (o.max_tokens &&
        std::none_of(places.begin(), places.end(), [](const TaskPlace& p) { return p.task.kind == TaskKind::number; }))
      throw ConfigError(
          fmt::format("--max-tokens {}: has no effect without a task whose answer is written (gsm8k)", *o.max_tokens));
    tokenizer_ = open_tokenizer(tokenizer_of_texts(o, m), m.folder, model_.vocab_size);
    for (const TaskPlace& place : places) {
      std::vector<TaskSet> pools;  // of examples
      if (o.num_fewshot > 0) {
        const auto given = std::find_if(examples.begin(), examples.end(),
                                        [&](const TaskPlace& e) { return e.task.name == place.task.name; });
        pools = read_task_sets(given == examples.end() ? place : *given, 0);
      }
      for (TaskSet& set : read_task_sets(place, o.limit)) ask(std::move(set), pools, m.shape);
    }
  }

  // Collective. Returns the results, on every rank.
  OrderedJson run(const ProcessMesh& mesh, const Evaluator::Spec& spec) const {
    std::vector<SetAnswers> answers(asked_.size());
    if (any(&Asked::is_scored)) {
      Evaluator evaluator(folder_, spec);
      for (size_t i = 0; i < asked_.size(); ++i) score(evaluator, asked_[i], answers[i]);
    }
    if (any(&Asked::is_written)) {
      TextGenerator generator(folder_, generator_spec(spec.machine, mesh));
      for (size_t i = 0; i < asked_.size(); ++i) write(generator, asked_[i], answers[i]);
    }
    std::vector<OrderedJson> results;
    for (size_t i = 0; i < asked_.size(); ++i) results.push_back(results_of(asked_[i].set, answers[i]));
    return with_groups(std::move(results));
  }

  // Of the generator.
  int64_t bytes(const Machine& machine, const ProcessMesh& mesh) const {
    if (!any(&Asked::is_written)) return 0;
    return TextGenerator::measure(model_, generator_spec(machine, mesh)).total();
  }

 private:
  bool any(bool (Asked::*is)() const) const {
    return std::any_of(asked_.begin(), asked_.end(), [is](const Asked& a) { return (a.*is)(); });
  }

  void ask(TaskSet set, const std::vector<TaskSet>& pools, const ForwardShape& shape) {
    // A last word is written as well: it, too, must have its place in the window.
    const int64_t window = shape.seq_length - (set.task.kind == TaskKind::last_word ? 1 : 0);
    const PromptSpec spec{*tokenizer_, o_.num_fewshot, uint64_t(o_.seed), window};
    const auto named = std::find_if(pools.begin(), pools.end(), [&](const TaskSet& p) { return p.name == set.name; });
    if (!pools.empty() && named == pools.end())
      throw ConfigError(
          fmt::format("--fewshot-from: holds no {}; give each file of the task one of the same name", set.name));
    Asked a{std::move(set), {}, {}};
    const TaskSet& pool = pools.empty() ? a.set : *named;
    if (a.is_scored()) a.scored = texts_to_score(a.set, pool, spec);
    if (a.set.task.kind == TaskKind::number) {
      if (most_written_ >= shape.seq_length)
        throw ConfigError(
            fmt::format("--max-tokens {}: the model sees {} tokens at once, and the question needs some; "
                        "ask for fewer, or raise --seq-length",
                        most_written_, shape.seq_length));
      a.open = prompts_to_answer(a.set, pool, spec, shape.seq_length - most_written_);
    }
    if (a.set.task.kind == TaskKind::last_word)
      for (const ScoredText& text : a.scored.texts)
        a.open.prompts.emplace_back(text.ids.begin(), text.ids.end() - text.scored);
    const int64_t truncated = a.scored.truncated + a.open.truncated;
    if (truncated > 0)
      tell_(
          fmt::format("note: {}: {} texts are longer than the {} tokens that the model sees at once, and lose their "
                      "beginning (--seq-length)",
                      a.set.name, truncated, shape.seq_length));
    asked_.push_back(std::move(a));
  }

  void score(Evaluator& evaluator, const Asked& a, SetAnswers& answers) const {
    answers.truncated = a.scored.truncated;
    if (!a.is_scored()) return;
    const std::vector<double> all = evaluator.log_probs(a.scored.texts);
    for (size_t i = 0; i < a.set.items.size(); ++i)
      answers.log_probs.emplace_back(all.begin() + int64_t(a.scored.first[i]),
                                     all.begin() + int64_t(a.scored.first[i + 1]));
  }

  // As many texts on each rank of dp as it has places for.
  void for_each_batch(const Asked& a, const std::function<void(const std::vector<Tokens>&, size_t first)>& take) const {
    const auto batch = size_t(o_.micro_batch_size * layout_.dp);
    for (size_t first = 0; first < a.open.prompts.size(); first += batch) {
      const size_t end = std::min(first + batch, a.open.prompts.size());
      take({a.open.prompts.begin() + int64_t(first), a.open.prompts.begin() + int64_t(end)}, first);
    }
  }

  void write(TextGenerator& generator, const Asked& a, SetAnswers& answers) const {
    answers.truncated += a.open.truncated;
    for_each_batch(a, [&](const std::vector<Tokens>& prompts, size_t first) {
      a.set.task.kind == TaskKind::number ? write_answers(generator, prompts, answers.written)
                                          : write_words(generator, a, first, prompts, answers.likeliest);
    });
  }

  void write_answers(TextGenerator& generator, const std::vector<Tokens>& prompts,
                     std::vector<std::string>& written) const {
    std::map<int64_t, Tokens> so_far;
    const int32_t end_of_document = tokenizer_->end_of_document();
    const auto ends = [&](int64_t prompt, int32_t token) {
      if (token == end_of_document) return TextEnds::before_token;
      Tokens& tokens = so_far[prompt];
      tokens.push_back(token);
      const std::string text = text_of(tokens);
      return std::any_of(std::begin(kStops), std::end(kStops), [&](const char* s) { return text.find(s) != text.npos; })
                 ? TextEnds::with_token
                 : TextEnds::no;
    };
    const Sampling likeliest{.temperature = 0};
    for (const Tokens& tokens :
         generate_texts(generator, {.prompts = prompts, .how = likeliest, .max_tokens = most_written_, .ends = ends})) {
      std::string text = text_of(tokens);
      for (const char* stop : kStops) text.erase(std::min(text.find(stop), text.size()));
      written.push_back(std::move(text));
    }
  }

  // A text ends where it differs from the one that is wanted.
  void write_words(TextGenerator& generator, const Asked& a, size_t first, const std::vector<Tokens>& prompts,
                   std::vector<bool>& likeliest) const {
    std::map<int64_t, size_t> so_far;
    const auto ends = [&](int64_t prompt, int32_t token) {
      const std::span<const int32_t> wanted = a.wanted(first + size_t(prompt));
      const size_t at = so_far[prompt]++;
      return at >= wanted.size() || wanted[at] != token || at + 1 == wanted.size() ? TextEnds::with_token
                                                                                   : TextEnds::no;
    };
    const Sampling how{.temperature = 0};
    int64_t most = 1;
    for (size_t i = 0; i < prompts.size(); ++i) most = std::max(most, a.most_tokens(first + i, most_written_));
    const std::vector<Tokens> texts =
        generate_texts(generator, {.prompts = prompts, .how = how, .max_tokens = most, .ends = ends});
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::span<const int32_t> wanted = a.wanted(first + i);
      likeliest.push_back(std::equal(texts[i].begin(), texts[i].end(), wanted.begin(), wanted.end()));
    }
  }

  std::string text_of(const Tokens& tokens) const { return tokenizer_->decode(tokens, Tokenizer::Specials::kShown); }

  // The prompts' tokens of each batch, on each rank of dp; those of unequal lengths once.
  std::vector<std::vector<int64_t>> batches() const {
    std::set<std::vector<int64_t>> all;
    for (const Asked& a : asked_)
      for_each_batch(a, [&](const std::vector<Tokens>& prompts, size_t) {
        for (int64_t rank = 0; rank < layout_.dp; ++rank) {
          std::vector<int64_t> tokens;
          const Run here = prompts_of(int64_t(prompts.size()), {layout_.dp, rank});
          for (int64_t i = here.first; i < here.end(); ++i) tokens.push_back(int64_t(prompts[size_t(i)].size()));
          if (!tokens.empty()) all.insert(tokens);
        }
      });
    return {all.begin(), all.end()};
  }

  // Places for the longest prompts and answers of all sets.
  TextGenerator::Spec generator_spec(const Machine& machine, const ProcessMesh& mesh) const {
    TextGenerator::Text longest{.prompt = 1, .all = 2};
    for (const Asked& a : asked_)
      for (size_t i = 0; i < a.open.prompts.size(); ++i) {
        const auto prompt = int64_t(a.open.prompts[i].size());
        longest.prompt = std::max(longest.prompt, prompt);
        longest.all = std::max(longest.all, prompt + a.most_tokens(i, most_written_));
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
  const Tell tell_;
  const int64_t most_written_;  // tokens of an answer
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<Asked> asked_;
};

OrderedJson with_settings(const EvalOptions& o, int64_t window, OrderedJson results) {
  OrderedJson all{
      {"model", o.model}, {"num_fewshot", o.num_fewshot}, {"seed", o.seed}, {"limit", o.limit}, {"seq_length", window}};
  all.update(results);
  return all;
}

// What a model writes need not be UTF-8.
std::string dumped(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace

int run_eval_tasks(const EvalOptions& o) {
  if (!o.data.empty())
    throw ConfigError(fmt::format("{}: no data is measured beside --tasks; leave one of them out", o.data[0]));
  if (!o.output.empty()) prepare_output(o.output, true);
  return run_eval_ranks(o, [&](const Measured& m) {
    const auto tasks = std::make_shared<TaskRun>(o, m);
    const auto run = [&o, tasks](const ProcessMesh& mesh, const Evaluator::Spec& spec) {
      const OrderedJson results = with_settings(o, spec.seq_length, tasks->run(mesh, spec));
      if (mesh.world->rank() != 0) return;
      std::cout << (o.json ? dumped(results, -1) : table_of(results)) << std::flush;
      if (!o.output.empty()) write_file_durably(o.output, dumped(results, 1));
    };
    return EvalWork{run,
                    [tasks](const Machine& machine, const ProcessMesh& mesh) { return tasks->bytes(machine, mesh); }};
  });
}

int run_eval_compare(const EvalOptions& o) {
  if (!o.model.empty()) throw ConfigError(fmt::format("{}: --compare takes two results files and no model", o.model));
  const std::vector<Comparison> comparisons = compare_results(o.compare[0], o.compare[1]);
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
