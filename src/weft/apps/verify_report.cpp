#include "weft/apps/verify_report.h"

#include <nlohmann/json.hpp>

#include "weft/apps/commands.h"

namespace weft {
namespace {

std::string place_of(const VerifyReport::Row& row) {
  const std::string step = fmt::format("step {}", row.step);
  return row.tensor.empty() ? step : fmt::format("{}, {}", step, row.tensor);
}

std::string verdict_of(const VerifyReport& report) {
  return report.equal() ? "equal: this layout gives the run of one rank" : "this layout DIFFERS from one rank";
}

std::string to_text(const VerifyReport::Pass& pass) {
  std::string text = fmt::format("\n{} on {}\n{:<15} {:>10} {:>10} {:>10}  {:<8} {}\n", pass.precision, pass.backend,
                                 "", "one rank", "layout", "allowed", "", "farthest at");
  for (const VerifyReport::Row& row : pass.rows)
    text += fmt::format("{:<15} {:>10.2e} {:>10.2e} {:>10.2e}  {:<8} {}\n", name_of(row.quantity), row.one_rank,
                        row.layout, row.allowed, row.equal() ? "equal" : "DIFFERS", place_of(row));
  return text;
}

std::string to_text(const VerifyReport::Finding& f) {
  std::string text = fmt::format("\nfirst in step {}, {}: {}\nthe smallest layout that differs: {}\n", f.step,
                                 f.precision, f.what, layout_words(f.smallest.recipe));
  for (const auto& tried : f.smallest.tried)
    text += fmt::format("  without {:<22} {:<9} ({})\n", tried.without,
                        !tried.differs   ? "cannot run"
                        : *tried.differs ? "differs"
                                         : "equal",
                        tried.left);
  return text + fmt::format("made by {}\n", f.operation);
}

std::string to_text(const VerifyReport& report) {
  std::string text = fmt::format(
      "model   {}\nlayout  {}\nsteps   {}\nDistances are from fp64 on one rank, relative to the largest of each "
      "tensor.\n",
      report.model, report.layout, report.steps);
  for (const VerifyReport::Pass& pass : report.passes) text += to_text(pass);
  if (report.finding) text += to_text(*report.finding);
  return text + "\n" + verdict_of(report) + "\n";
}

nlohmann::ordered_json to_json(const VerifyReport::Pass& pass) {
  nlohmann::ordered_json rows;
  for (const VerifyReport::Row& row : pass.rows)
    rows[name_of(row.quantity)] = {{"one_rank", row.one_rank}, {"layout", row.layout}, {"allowed", row.allowed},
                                   {"equal", row.equal()},     {"step", row.step},     {"tensor", row.tensor}};
  return {{"precision", pass.precision}, {"backend", pass.backend}, {"distances", rows}};
}

nlohmann::ordered_json to_json(const VerifyReport::Finding& f) {
  nlohmann::ordered_json tried = nlohmann::ordered_json::array();
  for (const auto& t : f.smallest.tried) {
    nlohmann::ordered_json differs;  // null: cannot run
    if (t.differs) differs = *t.differs;
    tried.push_back({{"without", t.without}, {"layout", t.left}, {"differs", differs}});
  }
  return {{"step", f.step},     {"precision", f.precision}, {"what", f.what},
          {"tensor", f.tensor}, {"operation", f.operation}, {"smallest_layout", layout_words(f.smallest.recipe)},
          {"tried", tried}};
}

nlohmann::ordered_json to_json(const VerifyReport& report) {
  nlohmann::ordered_json json{
      {"equal", report.equal()}, {"model", report.model}, {"layout", report.layout}, {"steps", report.steps}};
  for (const VerifyReport::Pass& pass : report.passes) json["passes"].push_back(to_json(pass));
  if (report.finding) json["first_difference"] = to_json(*report.finding);
  return json;
}

}  // namespace

int print_report(const VerifyReport& report, bool json, std::ostream& out) {
  out << (json ? to_json(report).dump(2) + "\n" : to_text(report));
  return report.equal() ? kExitOk : kExitFailure;
}

}  // namespace weft
