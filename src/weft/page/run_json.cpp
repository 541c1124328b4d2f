#include "weft/page/run_json.h"

#include <algorithm>
#include <cmath>

#include "weft/records/metrics_log.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kAttemptsShown = 100;

// A double that is not finite becomes null.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
Json time_or_null(double seconds) { return seconds > 0 ? Json(seconds) : Json(); }

Json identity_of(const RunView& run, size_t number) {
  return {{"run", number},
          {"id", run.facts().id},
          {"name", run.name()},
          {"path", run.facts().path},
          {"generation", run.generation()},
          {"state", run.state()},
          {"step", run.step()},
          {"total", or_null(run.total_steps())}};
}

Json json_of(const TimeSums& t) {
  Json waits = Json::object();
  for (const auto& [axis, seconds] : t.waits_s) waits[axis] = seconds;
  return {{"steps", t.steps},
          {"step_s", t.step_s},
          {"data_s", t.data_s},
          {"waits_s", waits},
          {"eval_s", t.eval_s},
          {"save_s", t.save_s},
          {"compute_s", std::max(0.0, t.step_s - t.data_s - t.waited_s())}};
}

Json speed_of(const TimeSums& t) {
  if (t.steps == 0 || t.step_s <= 0) return nullptr;
  return {{"steps", t.steps},
          {"tokens_per_s", t.tokens / t.step_s},
          {"step_time_s", t.step_s / double(t.steps)},
          {"mfu", t.mfu_s > 0 ? Json(t.mfu_s / t.step_s) : Json()}};
}

Json layout_of(const RunView& run) {
  if (!run.recipe()) return nullptr;
  const Recipe::Parallel& p = run.recipe()->parallel;
  return {{"dp", p.dp}, {"tp", p.tp}, {"pp", p.pp}, {"cp", p.cp}, {"ep", p.ep}, {"zero_stage", p.zero_stage}};
}

Json attempts_of(const RunView& run) {
  const std::vector<RunAttempt>& all = run.facts().attempts;
  const std::vector<std::optional<int64_t>> from_steps = run.from_steps();
  Json out = Json::array();
  for (size_t i = all.size() - std::min(all.size(), kAttemptsShown); i < all.size(); ++i) {
    const RunAttempt& a = all[i];
    out.push_back({{"attempt", i + 1},
                   {"began", time_or_null(a.began_s)},
                   {"ended", a.end ? Json(a.end->time_s) : Json()},
                   {"status", a.end ? Json(a.end->status) : Json()},
                   {"reason", a.end ? a.end->reason : ""},
                   {"host", a.host},
                   {"machine", a.machine},
                   {"ranks", a.ranks},
                   {"from_step", or_null(from_steps[i])}});
  }
  return out;
}

Json tasks_of(const RunView& run) {
  const auto& tasks = run.metrics().tasks();
  constexpr std::string_view kError = "_stderr";
  Json out = Json::array();
  for (const auto& [name, at] : tasks) {
    if (name.ends_with(kError) && tasks.count(name.substr(0, name.size() - kError.size())) > 0) continue;
    const auto error = tasks.find(name + std::string(kError));
    out.push_back({{"name", name},
                   {"value", at.value},
                   {"stderr", error == tasks.end() ? Json() : Json(error->second.value)},
                   {"step", at.step}});
  }
  return out;
}

Json checkpoints_of(const RunView& run) {
  Json out = Json::array();
  for (const CheckpointFacts& c : run.facts().checkpoints)
    out.push_back({{"step", c.step},
                   {"bytes", c.bytes},
                   {"held_out_loss", or_null(c.held_out_loss)},
                   {"time", time_or_null(run.saved_s(c.step))}});
  return out;
}

Json numbers_of(const Json& record) {
  Json out = Json::object();
  if (!record.is_object()) return out;
  for (const auto& [name, value] : record.items())
    if ((value.is_number() || value.is_null()) && out.size() < kMostCurves) out[name] = value;
  return out;
}

}  // namespace

Json list_entry_of(const RunView& run, size_t number) {
  Json out = identity_of(run, number);
  out["model"] = run.facts().model;
  out["objective"] = run.facts().objective;
  return out;
}

Json stream_entry_of(const RunView& run, size_t number) {
  return {{"run", number},
          {"generation", run.generation()},
          {"state", run.state()},
          {"step", run.step()},
          {"total", or_null(run.total_steps())},
          {"eta_s", or_null(run.eta_s())},
          {"records", run.metrics().num_records()},
          {"events", run.num_events()},
          {"attempts", run.facts().attempts.size()},
          {"checkpoints", run.facts().checkpoints.size()},
          {"latest", numbers_of(run.latest())}};
}

Json json_of_run(const RunView& run, size_t number, double now_s, std::optional<double> price_per_hour) {
  const RunFacts& facts = run.facts();
  const RunAttempt last = facts.attempts.empty() ? RunAttempt() : facts.attempts.back();
  const auto& best = run.metrics().best_evaluation();
  const Json latest = run.latest();
  constexpr double kHourS = 3600;
  Json out = identity_of(run, number);
  out["now"] = now_s;
  out["reason"] = run.reason();
  out["loaded"] = run.metrics().read_fraction();
  out["eta_s"] = or_null(run.eta_s());
  out["began"] = time_or_null(facts.began_s);
  out["last_record"] = time_or_null(run.last_record_s());
  out["running_s"] = run.running_s(now_s);
  out["model"] = facts.model;
  out["objective"] = facts.objective;
  out["machine"] = last.machine;
  out["host"] = last.host;
  out["weft"] = version_of(last.weft);
  out["ranks"] = last.ranks;
  out["launcher"] = last.launcher;
  out["layout"] = layout_of(run);
  out["latest"] = latest;
  out["held_out"] = run.held_out();
  out["best_held_out"] = best ? Json{{"step", best->step}, {"loss", best->loss}} : Json();
  out["tasks"] = tasks_of(run);
  out["speed"] = speed_of(run.metrics().recent_sums());
  out["time"] = json_of(run.metrics().sums());
  out["time_recent"] = json_of(run.metrics().recent_sums());
  out["memory"] = {{"used_bytes", latest.is_object() ? latest.value("memory_bytes", Json()) : Json()}};
  out["price"] = price_per_hour ? Json{{"per_hour", *price_per_hour},
                                       {"so_far", *price_per_hour * run.running_s(now_s) / kHourS},
                                       {"currency", nullptr}}
                                : Json();
  out["attempts"] = attempts_of(run);
  out["events"] = run.events();
  out["samples"] = run.samples();
  out["checkpoints"] = checkpoints_of(run);
  out["recipe"] = Json::object();
  for (const auto& [key, value] : facts.recipe) out["recipe"][key] = value;
  out["problems"] = run.problems();
  return out;
}

Json json_of_names(const RunView& run, size_t number) {
  Json names = Json::array();
  for (const auto& [name, curve] : run.metrics().curves()) {
    const CurvePoint& last = curve.points.last();
    names.push_back({{"name", name},
                     {"kind", name_of(curve.kind)},
                     {"unit", unit_of_curve(name)},
                     {"points", curve.points.num_points()},
                     {"last", last.value},
                     {"last_step", last.step}});
  }
  Json out{{"run", number}, {"generation", run.generation()}, {"names", names}};
  if (run.metrics().names_left_out() > 0) out["more"] = run.metrics().names_left_out();
  return out;
}

Json json_of_curves(const RunView& run, size_t number, const std::vector<MetricsFollower::Window>& windows) {
  Json curves = Json::array();
  for (const MetricsFollower::Window& w : windows) {
    Json steps = Json::array(), values = Json::array();
    for (const CurvePoint& p : w.points) steps.push_back(p.step), values.push_back(p.value);
    curves.push_back({{"name", w.name},
                      {"kind", w.kind ? Json(name_of(*w.kind)) : Json()},
                      {"thinned", w.thinned},
                      {"steps", std::move(steps)},
                      {"values", std::move(values)}});
  }
  return {{"run", number},
          {"generation", run.generation()},
          {"first_step", run.metrics().first_step()},
          {"last_step", run.metrics().last_step()},
          {"curves", std::move(curves)}};
}

Json json_of_map(const RunView& run, size_t number, const NormMap& map, const NormMap::Columns& columns) {
  Json out{{"run", number}, {"generation", run.generation()}, {"of", map.kind().key}, {"available", map.is_there()}};
  if (!map.is_there()) {
    out["reason"] = fmt::format("these are recorded with {}", map.kind().option);
    return out;
  }
  out["names"] = columns.names;
  out["steps"] = columns.steps;
  out["ends"] = columns.ends;
  out["values"] = columns.values;
  return out;
}

std::string version_of(std::string_view told) {
  constexpr std::string_view kProgram = "weft ";
  return std::string(told.starts_with(kProgram) ? told.substr(kProgram.size()) : told);
}

std::string unit_of_curve(const std::string& name) {
  const std::string first = name.substr(0, name.find('.')), last = name.substr(name.rfind('.') + 1);
  if (name == "tokens_per_s") return "tokens/s";
  if (name == "mfu" || last.ends_with("fraction") || last == "accuracy") return "fraction";
  if (first.ends_with("bytes")) return "bytes";
  if (first.ends_with("_s")) return "s";
  if (last == "aux_loss" || last == "z_loss") return "";  // no logarithms of probabilities
  if (last.ends_with("loss") || last.starts_with("logp") || first.ends_with("router_entropy") || last == "ce" ||
      last.starts_with("kl"))
    return "nats";
  return "";
}

}  // namespace weft
