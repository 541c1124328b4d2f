// Plans of rented devices as text and JSON.
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/forecast/rent_plan.h"

namespace weft {

std::string to_string(const RentPlan& plan) {
  std::string text = fmt::format("{} steps; a checkpoint to move is {:.1f} GB\n\nwhere, in the best layout there\n",
                                 plan.steps, plan.checkpoint_bytes / 1e9);
  for (const RentSite& s : plan.sites)
    text += s.why_not.empty() ? fmt::format("  {:<28} {:>10} a step, {:>12} in all  {} devices: {}\n", s.name,
                                            duration_text(s.step_s), duration_text(s.step_s * double(plan.steps)),
                                            s.layout.num_devices(), to_string(s.layout))
                              : fmt::format("  {:<28} {}\n", s.name, s.why_not);
  text += fmt::format(
      "\nfrom Monday 0:00 UTC on, with failures and preemptions as expected; * no other is as soon and as "
      "cheap\n  {:>12} {:>12} {:>8} {:>6}   way\n",
      "price", "time", "rented", "moves");
  for (const RentOutcome& o : plan.outcomes)
    text += fmt::format("{} {:>12.6g} {:>12} {:>6.0f} h {:>6}   {}\n", o.beaten ? ' ' : '*', o.price,
                        duration_text(o.run_s), o.rented_hours, o.moves, o.name);
  for (const std::string& line : plan.cannot) text += "  " + line + "\n";
  return text;
}

nlohmann::json to_json(const RentPlan& plan) {
  nlohmann::json json{{"steps", plan.steps},
                      {"checkpoint_bytes", plan.checkpoint_bytes},
                      {"sites", nlohmann::json::array()},
                      {"ways", nlohmann::json::array()},
                      {"cannot", plan.cannot}};
  for (const RentSite& s : plan.sites) {
    json["sites"].push_back({{"name", s.name}});
    if (s.why_not.empty())
      json["sites"].back().update(
          {{"num_devices", s.layout.num_devices()}, {"layout", to_string(s.layout)}, {"step_s", s.step_s}});
    else
      json["sites"].back()["why_not"] = s.why_not;
  }
  for (const RentOutcome& o : plan.outcomes)
    json["ways"].push_back({{"way", o.name},
                            {"price", o.price},
                            {"run_s", o.run_s},
                            {"rented_hours", o.rented_hours},
                            {"moves", o.moves},
                            {"beaten", o.beaten}});
  return json;
}

}  // namespace weft
