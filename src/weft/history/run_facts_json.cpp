// RunFacts as JSON, as the index keeps them and `--json` prints them; and back.
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/history/run_facts.h"

namespace weft {
namespace {

using Out = nlohmann::ordered_json;
using In = nlohmann::json;
constexpr JsonFields::Range kAnyNumber = {.min = std::numeric_limits<double>::lowest()};
constexpr JsonFields::IntRange kAnyCount = {.min = std::numeric_limits<int64_t>::min()};

Out out_of(const RunAttempt& a) {
  Out json{{"began_s", a.began_s}, {"weft", a.weft},       {"program", a.program},
           {"host", a.host},       {"machine", a.machine}, {"folder", a.folder},
           {"from", a.from},       {"ranks", a.ranks},     {"launcher", a.launcher}};
  if (a.end) json["end"] = {{"time_s", a.end->time_s}, {"status", a.end->status}, {"reason", a.end->reason}};
  return json;
}

RunAttempt attempt_of(const In& json, const std::string& source) {
  const JsonFields f(json, source, "attempts.");
  RunAttempt a{.began_s = f.number("began_s", kAnyNumber),
               .weft = f.string("weft"),
               .program = f.string("program"),
               .host = f.string("host"),
               .machine = f.string("machine"),
               .folder = f.string("folder"),
               .from = f.string("from"),
               .ranks = f.integer("ranks", kAnyCount),
               .launcher = f.string("launcher")};
  if (f.has("end")) {
    const JsonFields end = f.object("end");
    a.end = RunAttempt::End{.time_s = end.number("time_s", kAnyNumber),
                            .status = int(end.integer("status", kAnyCount)),
                            .reason = end.string("reason")};
  }
  return a;
}

std::map<std::string, std::string> texts_of(const JsonFields& object, const std::string& source) {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : object.json().items()) {
    if (!value.is_string()) throw FileError(fmt::format("{}: {}: expected a text", source, in_quotes(key)));
    texts[key] = value.get<std::string>();
  }
  return texts;
}

std::map<std::string, RunResult> results_of(const JsonFields& object, const std::string& source) {
  std::map<std::string, RunResult> results;
  for (const auto& [name, value] : object.json().items()) {
    const JsonFields one(value, source, "results.");
    results[name] = {.value = one.number("value", kAnyNumber), .step = one.integer("step", kAnyCount)};
  }
  return results;
}

}  // namespace

Out to_json(const RunFacts& r) {
  Out json{{"path", r.path},
           {"id", r.id},
           {"status", name_of(r.status)},
           {"problems", r.problems},
           {"model", r.model},
           {"objective", r.objective},
           {"step", r.step},
           {"train_iters", r.train_iters},
           {"began_s", r.began_s},
           {"last_s", r.last_s},
           {"busy_s", r.busy_s},
           {"results", Out::object()},
           {"data_order", r.data_order},
           {"data", to_json(r.data)},
           {"inputs", Out::array()},
           {"checkpoints", Out::array()},
           {"attempts", Out::array()},
           {"recipe", r.recipe}};
  if (r.recipe.empty()) json["recipe"] = Out::object();
  for (const auto& [name, result] : r.results) json["results"][name] = {{"value", result.value}, {"step", result.step}};
  for (const RunInput& input : r.inputs) json["inputs"].push_back({{"role", input.role}, {"path", input.path}});
  for (const CheckpointFacts& c : r.checkpoints) {
    Out one{{"step", c.step}, {"bytes", c.bytes}};
    if (c.held_out_loss) one["held_out_loss"] = *c.held_out_loss;
    json["checkpoints"].push_back(one);
  }
  for (const RunAttempt& a : r.attempts) json["attempts"].push_back(out_of(a));
  return json;
}

RunFacts run_facts_of(const In& json, const std::string& source) {
  const JsonFields f(json, source);
  const auto status = run_status_of(f.string("status"));
  if (!status) f.fail("status", "one of the statuses of a run");
  RunFacts r{.path = f.string("path"), .id = f.string("id"), .status = *status};
  for (const In& problem : f.list("problems", "a list of texts")) {
    if (!problem.is_string()) f.fail("problems", "a list of texts");
    r.problems.push_back(problem.get<std::string>());
  }
  r.model = f.string("model");
  r.objective = f.string("objective");
  r.step = f.integer("step", kAnyCount);
  r.train_iters = f.integer("train_iters", kAnyCount);
  r.began_s = f.number("began_s", kAnyNumber);
  r.last_s = f.number("last_s", kAnyNumber);
  r.busy_s = f.number("busy_s", kAnyNumber);
  r.results = results_of(f.object("results"), source);
  r.data_order = f.string("data_order");
  r.data = run_sources_of(f.list("data", "a list of files"), source);
  for (const In& input : f.list("inputs", "a list of inputs")) {
    const JsonFields one(input, source, "inputs.");
    r.inputs.push_back({.role = one.string("role"), .path = one.string("path")});
  }
  for (const In& checkpoint : f.list("checkpoints", "a list of checkpoints")) {
    const JsonFields one(checkpoint, source, "checkpoints.");
    CheckpointFacts c{.step = one.integer("step", kAnyCount), .bytes = one.integer("bytes", kAnyCount)};
    if (one.has("held_out_loss")) c.held_out_loss = one.number("held_out_loss", kAnyNumber);
    r.checkpoints.push_back(c);
  }
  for (const In& attempt : f.list("attempts", "a list of attempts")) r.attempts.push_back(attempt_of(attempt, source));
  r.recipe = texts_of(f.object("recipe"), source);
  return r;
}

}  // namespace weft
