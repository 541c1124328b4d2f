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
  if (report.equal()) return "equal: this layout gives the run of one rank";
  if (report.finding->on_one_rank)
    return "one rank itself is NOT RIGHT in " + report.finding->precision + ", whatever the layout";
  return "this layout DIFFERS from one rank";
}

std::string to_text(const VerifyReport::Pass& pass) {
  std::string text = fmt::format("\n{} on {}\n{:<15} {:>10} {:>10} {:>10} {:>10}  {:<8} {}\n", pass.precision,
                                 pass.backend, "", "one rank", "(allowed)", "layout", "allowed", "", "farthest at");
  for (const VerifyReport::Row& row : pass.rows)
    text +=
        fmt::format("{:<15} {:>10.2e} {:>10.2e} {:>10.2e} {:>10.2e}  {:<8} {}\n", name_of(row.quantity), row.one_rank,
                    row.one_rank_allowed, row.layout, row.allowed, row.equal() ? "equal" : "DIFFERS", place_of(row));
  constexpr size_t kMostNamed = 4;
  for (size_t i = 0; i < std::min(kMostNamed, pass.ill_conditioned.size()); ++i)
    text += fmt::format("ill-conditioned: {} is made of rounding errors, as in fp64 rounded alike\n",
                        pass.ill_conditioned[i]);
  if (pass.ill_conditioned.size() > kMostNamed)
    text += fmt::format("ill-conditioned: {} more\n", pass.ill_conditioned.size() - kMostNamed);
  return text;
}

std::string to_text(const VerifyReport::Finding& f) {
  std::string text = fmt::format("\nfirst in step {}, {}: {}\n", f.step, f.precision, f.what);
  if (!f.on_one_rank) text += fmt::format("the smallest layout that differs: {}\n", layout_words(f.smallest.recipe));
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
    rows[name_of(row.quantity)] = {{"one_rank", row.one_rank}, {"one_rank_allowed", row.one_rank_allowed},
                                   {"layout", row.layout},     {"allowed", row.allowed},
                                   {"equal", row.equal()},     {"step", row.step},
                                   {"tensor", row.tensor}};
  return {{"precision", pass.precision},
          {"backend", pass.backend},
          {"distances", rows},
          {"ill_conditioned", pass.ill_conditioned}};
}

nlohmann::ordered_json to_json(const VerifyReport::Finding& f) {
  nlohmann::ordered_json tried = nlohmann::ordered_json::array();
  for (const auto& t : f.smallest.tried) {
    nlohmann::ordered_json differs;  // null: cannot run
    if (t.differs) differs = *t.differs;
    tried.push_back({{"without", t.without}, {"layout", t.left}, {"differs", differs}});
  }
  return {{"step", f.step},     {"precision", f.precision},    {"what", f.what},
          {"tensor", f.tensor}, {"operation", f.operation},    {"smallest_layout", layout_words(f.smallest.recipe)},
          {"tried", tried},     {"on_one_rank", f.on_one_rank}};
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
