#include "weft/tasks/task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/tasks/written_tasks.h"

namespace weft {
namespace {

constexpr const char* kSpace = " \t\r\n";

std::string without_end(std::string text) {
  text.erase(text.find_last_not_of(kSpace) + 1);
  return text;
}
std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == text.npos ? "" : without_end(text.substr(begin));
}
std::vector<std::string> after_space(std::vector<std::string> choices) {
  for (std::string& choice : choices) choice.insert(0, " ");
  return choices;
}

size_t gold_of(const JsonFields& row, const char* key, size_t choices) {
  const nlohmann::json* gold = row.find(key);
  if (gold != nullptr && gold->is_number_unsigned() && gold->get<uint64_t>() < choices) return gold->get<size_t>();
  const std::string expected = fmt::format(
      "the number of the right choice, from 0 to {}; a split without answers cannot be scored", choices - 1);
  if (gold == nullptr) throw FileError(fmt::format("{}: is missing; it is {}", row.where(key), expected));
  row.fail(key, expected);
}

std::vector<std::string> strings_of(const JsonFields& row, const char* key) {
  std::vector<std::string> texts;
  for (const nlohmann::json& text : row.list(key, "a list of texts")) {
    if (!text.is_string()) row.fail(key, "a list of texts");
    texts.push_back(text.get<std::string>());
  }
  if (texts.size() < 2) row.fail(key, "at least two texts");
  return texts;
}

// {"query", "choices", "gold"}; `cue` leads to the answer.
TaskItem read_query(const JsonFields& row, const std::string& cue) {
  TaskItem item{.contexts = {without_end(row.string("query")) + cue},
                .choices = after_space(strings_of(row, "choices"))};
  item.gold = gold_of(row, "gold", item.choices.size());
  return item;
}

TaskItem question_of(const std::string& question, const std::vector<std::string>& choices, size_t gold) {
  return {.contexts = {"Question: " + question + "\nAnswer:"}, .choices = after_space(choices), .gold = gold};
}

TaskItem read_piqa(const JsonFields& row) {
  if (row.has("query")) return read_query(row, "\nAnswer:");
  return question_of(row.string("goal"), {row.string("sol1"), row.string("sol2")}, gold_of(row, "label", 2));
}

// Choices are {"text": [], "label": []} or [{"text", "label"}], the answer is one of the labels.
TaskItem read_arc(const JsonFields& row) {
  if (row.has("query")) return read_query(row, "\nAnswer:");
  const nlohmann::json* stem = row.find("question");
  const bool nested = stem != nullptr && stem->is_object();
  const JsonFields question = nested ? row.object("question") : row;
  std::vector<std::string> texts, labels;
  if (const nlohmann::json* choices = question.find("choices"); choices != nullptr && choices->is_array()) {
    for (const nlohmann::json& one : *choices) {
      const JsonFields choice(one, question.where("choices"));
      texts.push_back(choice.string("text")), labels.push_back(choice.string("label"));
    }
  } else {
    const JsonFields lists = question.object("choices");
    texts = strings_of(lists, "text"), labels = strings_of(lists, "label");
    if (labels.size() != texts.size()) lists.fail("label", fmt::format("{} labels", texts.size()));
  }
  const auto gold = size_t(std::find(labels.begin(), labels.end(), row.string("answerKey")) - labels.begin());
  if (gold == labels.size()) row.fail("answerKey", fmt::format("one of {}", fmt::join(labels, ", ")));
  return question_of(question.string(nested ? "stem" : "question"), texts, gold);
}

// The choices stand in the context, and what follows them is scored (Trinh & Le 2018, partial evaluation).
TaskItem read_winogrande(const JsonFields& row) {
  if (row.has("context_options")) {
    TaskItem item{.contexts = strings_of(row, "context_options"), .choices = {" " + row.string("continuation")}};
    item.gold = gold_of(row, "gold", item.contexts.size());
    return item;
  }
  const std::string sentence = row.string("sentence"), answer = row.string("answer");
  const size_t blank = sentence.find('_');
  if (blank == sentence.npos) row.fail("sentence", "a sentence with _ where the options go");
  if (answer != "1" && answer != "2") row.fail("answer", "\"1\" or \"2\"; a split without answers cannot be scored");
  const std::string before = sentence.substr(0, blank);
  return {.contexts = {before + row.string("option1"), before + row.string("option2")},
          .choices = {" " + trimmed(sentence.substr(blank + 1))},
          .gold = size_t(answer[0] - '1')};
}

TaskItem read_copa(const JsonFields& row) {
  if (row.has("query")) return read_query(row, "");
  const std::string asks = row.string("question");
  if (asks != "cause" && asks != "effect") row.fail("question", "\"cause\" or \"effect\"");
  std::vector<std::string> choices{row.string("choice1"), row.string("choice2")};
  for (std::string& choice : choices)
    if (!choice.empty()) choice[0] = char(std::tolower(static_cast<unsigned char>(choice[0])));
  std::string premise = trimmed(row.string("premise"));
  if (!premise.empty()) premise.pop_back();  // the full stop
  return {.contexts = {premise + (asks == "cause" ? " because" : " therefore")},
          .choices = after_space(choices),
          .gold = gold_of(row, "label", 2)};
}

TaskItem read_lambada(const JsonFields& row) {
  if (row.has("continuation"))
    return {.contexts = {without_end(row.string("context"))}, .choices = {" " + trimmed(row.string("continuation"))}};
  const std::string text = trimmed(row.string("text"));
  const size_t last = text.find_last_of(' ');
  if (last == text.npos) row.fail("text", "at least two words");
  return {.contexts = {text.substr(0, last)}, .choices = {text.substr(last)}};
}

TaskItem read_blimp(const JsonFields& row) {
  return {.contexts = {""}, .choices = {row.string("sentence_good"), row.string("sentence_bad")}};
}

// One question in several wordings: {"queries": [], "choices": [], "gold"}; all choices behind each wording.
TaskItem read_perturbed(const JsonFields& row) {
  const std::vector<std::string> queries = strings_of(row, "queries"),
                                 choices = after_space(strings_of(row, "choices"));
  TaskItem item{.contexts = {}, .choices = {}, .gold = gold_of(row, "gold", choices.size()), .given = choices.size()};
  for (const std::string& query : queries)
    for (const std::string& choice : choices)
      item.contexts.push_back(without_end(query)), item.choices.push_back(choice);
  return item;
}

}  // namespace

std::vector<Task> all_tasks() {
  const std::string query = "{query, choices, gold}", arc = query + " or {question, choices, answerKey}",
                    last_word = "{text} or {context, continuation}";
  const std::vector<std::string> acc = {"acc"}, both = {"acc", "acc_norm"}, word = {"acc", "log_prob"};
  std::vector<Task> tasks = {
      {"arc_challenge", TaskKind::choices, arc, both, read_arc},
      {"arc_easy", TaskKind::choices, arc, both, read_arc},
      {"blimp", TaskKind::choices, "{sentence_good, sentence_bad}", acc, read_blimp},
      {"copa", TaskKind::choices, query + " or {premise, choice1, choice2, question, label}", acc, read_copa},
      {"lambada", TaskKind::last_word, last_word, word, read_lambada},
      {"lambada_openai", TaskKind::last_word, last_word, word, read_lambada},
      {"perturbed", TaskKind::choices, "{queries, choices, gold}", {"acc", "worst", "consistent"}, read_perturbed},
      {"piqa", TaskKind::choices, query + " or {goal, sol1, sol2, label}", both, read_piqa},
      {"winogrande", TaskKind::choices, "{sentence, option1, option2, answer} or {context_options, continuation, gold}",
       acc, read_winogrande},
  };
  for (Task& task : written_tasks()) tasks.push_back(std::move(task));
  std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.name < b.name; });
  return tasks;
}

Task find_task(const std::string& option, const std::string& name) {
  std::vector<std::string> names;
  for (Task& task : all_tasks()) {
    if (task.name == name) return task;
    names.push_back(task.name);
  }
  const std::string near = nearest_name(name, names);
  throw ConfigError(fmt::format("{} {}: there is no such task{}; there are {}", option, name,
                                near.empty() ? "" : ": did you mean " + near + "?", fmt::join(names, ", ")));
}

TaskItem read_item(const Task& task, const TaskRow& row) {
  try {
    TaskItem item = task.read(JsonFields(row.json, row.where));
    item.where = row.where, item.row = row.number;
    return item;
  } catch (const FileError& e) {
    throw FileError(fmt::format("{}\na row of {} is {}", e.what(), task.name, task.shapes));
  }
}

}  // namespace weft
