// `weft plan rent`: a run on rented devices, hour by hour.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/base/error.h"
#include "weft/base/threads.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/rent_plan.h"

namespace weft {
namespace {

Offers read_offers(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || !std::filesystem::is_regular_file(path)) throw FileError(fmt::format("{}: cannot be read", path));
  return parse_offers(text.str(), path, [](const std::string& name) { return read_cluster(name); });
}

}  // namespace

int run_plan_rent(const PlanRentOptions& options) {
  if (options.recipe.empty()) throw ConfigError("a recipe is missing, as in `weft plan rent recipe.toml`");
  const Offers offers = read_offers(options.prices);
  const ClusterSpec& first = offers.owned ? offers.owned->cluster : offers.rented[0].cluster;
  const Recipe recipe = read_recipe(options.recipe, options.overrides, true, &first);
  const RentPlan plan =
      plan_rent(recipe, read_hf_config(recipe.model.path), offers, Profiles::built_in(), usable_cores());
  std::cout << (options.json ? to_json(plan).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
                             : to_string(plan));
  return plan.outcomes.empty() ? kExitFailure : kExitOk;
}

}  // namespace weft
