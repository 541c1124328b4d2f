#include "weft/forecast/serving.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/price.h"

namespace weft {
namespace {

constexpr double kGiBServed = double(1 << 30);

}  // namespace

ServingForecast price_serving(const std::vector<ServedStage>& stages, const ServingLayout& layout,
                              const ServingLoad& load, const ModelSpec& model, const ClusterSpec& cluster,
                              const Profiles& profiles) {
  const ProgramProfile profile = program_on(cluster, profiles.of("weft", model.has_experts()));
  MeshSizes mesh;
  mesh.tp = int(layout.tp);
  mesh.pp = int(layout.pp);
  const auto seconds = [&](const PassData& pass, int64_t value_bytes, bool sends) {
    ActionWork work = work_of_pass(pass, model, mesh, cluster);
    const double bytes = double(pass.rows) * double(model.width) * double(value_bytes);
    if (sends) work.transfers.push_back(message_work(bytes, mesh, cluster));
    return seconds_of_pass(work, profile, cluster.device.generation);
  };
  ServingForecast f{.layout = layout};
  for (size_t i = 0; i < stages.size(); ++i) {
    f.first_token_s += seconds(stages[i].begin, stages[i].value_bytes, i + 1 < stages.size());
    f.token_s += seconds(stages[i].token, stages[i].value_bytes, i + 1 < stages.size());
  }
  const auto texts = double(layout.texts), tokens = double(load.tokens);
  f.tokens_per_s = double(layout.replicas) * texts * tokens / (texts * f.first_token_s + tokens * f.token_s);
  f.price_per_million = cluster.price_per_device_hour / 3600 * double(layout.num_devices()) / f.tokens_per_s * 1e6;
  return f;
}

std::vector<ServingForecast> serving_front(std::vector<ServingForecast> all) {
  std::stable_sort(all.begin(), all.end(), [](const ServingForecast& a, const ServingForecast& b) {
    return a.tokens_per_s != b.tokens_per_s ? a.tokens_per_s > b.tokens_per_s : a.token_s < b.token_s;
  });
  // How long a text waits: for its first token, and for each further one.
  const auto waits_less = [](const ServingForecast& a, const ServingForecast& b) {
    return a.first_token_s < b.first_token_s || a.token_s < b.token_s;
  };
  std::vector<ServingForecast> front;
  for (ServingForecast& one : all)
    if (std::all_of(front.begin(), front.end(), [&](const auto& faster) { return waits_less(one, faster); }))
      front.push_back(std::move(one));
  return front;
}

std::string to_string(const std::vector<ServingForecast>& front, const ServingLoad& load, const ClusterSpec& cluster) {
  std::string text = fmt::format(
      "serving on {} {}, prompts of {} tokens and {} behind them; the highest rate first, then less waiting for less "
      "rate\n{:>4} {:>4} {:>9} {:>7} {:>12} {:>10} {:>11} {:>9} {:>9} {:>12}\n",
      front.front().layout.num_devices(), cluster.device.name, load.prompt, load.tokens, "tp", "pp", "replicas",
      "texts", "first token", "a token", "tokens/s", "GiB", "KV GiB", "a million");
  for (const ServingForecast& f : front)
    text +=
        fmt::format("{:>4} {:>4} {:>9} {:>7} {:>9.1f} ms {:>7.2f} ms {:>11.0f} {:>9.1f} {:>9.2f} {:>12}\n", f.layout.tp,
                    f.layout.pp, f.layout.replicas, f.layout.texts, f.first_token_s * 1e3, f.token_s * 1e3,
                    f.tokens_per_s, double(f.memory_bytes) / kGiBServed, double(f.cache_bytes) / kGiBServed,
                    f.price_per_million > 0 ? fmt::format("{:.4g}", f.price_per_million) : "-");
  return text;
}

nlohmann::json to_json(const std::vector<ServingForecast>& front, const ServingLoad& load) {
  nlohmann::json json{{"prompt_tokens", load.prompt}, {"max_tokens", load.tokens}};
  for (const ServingForecast& f : front) {
    const nlohmann::json price = f.price_per_million > 0 ? nlohmann::json(f.price_per_million) : nlohmann::json();
    json["layouts"].push_back({{"tp", f.layout.tp},
                               {"pp", f.layout.pp},
                               {"replicas", f.layout.replicas},
                               {"texts", f.layout.texts},
                               {"first_token_s", f.first_token_s},
                               {"token_s", f.token_s},
                               {"tokens_per_s", f.tokens_per_s},
                               {"memory_bytes", f.memory_bytes},
                               {"cache_bytes", f.cache_bytes},
                               {"price_per_million_tokens", price}});
  }
  return json;
}

}  // namespace weft
