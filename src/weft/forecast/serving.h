// What a model takes to serve: the first token, each further one, and how many texts at once, by layout.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/forecast/profile.h"
#include "weft/forecast/work.h"

namespace weft {

// Texts of a prompt and tokens behind it, at any time as many as a replica takes: one that ends makes room for the
// next, whose prompt passes alone.
struct ServingLoad {
  int64_t prompt = 2048, tokens = 256;
};

// Devices in replicas of tp x pp ranks, each with `texts` texts.
struct ServingLayout {
  int64_t tp = 1, pp = 1, replicas = 1, texts = 1;
  int64_t num_devices() const { return tp * pp * replicas; }
};

struct ServingForecast {
  ServingLayout layout = {};
  double first_token_s = 0;  // of a text that begins while no other one does
  double token_s = 0;        // of each text, all of them at their full length
  double tokens_per_s = 0;   // of all replicas, that texts end with; the time of their prompts is in it
  int64_t memory_bytes = 0, cache_bytes = 0;  // of the fullest device, and of that keys and values
  double price_per_million = 0;               // tokens; 0: not known
};

// The passes of one stage of a replica, on its first rank.
struct ServedStage {
  PassData begin, token;
  int64_t value_bytes = 2;  // of what goes to the next stage
};
// Without memory. A pass is in one stage at a time: where weft begins texts in portions, which overlap in a pipeline,
// that gain is not priced.
ServingForecast price_serving(const std::vector<ServedStage>& stages, const ServingLayout& layout,
                              const ServingLoad& load, const ModelSpec& model, const ClusterSpec& cluster,
                              const Profiles& profiles);

// Those that no other one beats in the rate, the first token and each further one: the highest rate first.
std::vector<ServingForecast> serving_front(std::vector<ServingForecast> all);
std::string to_string(const std::vector<ServingForecast>& front, const ServingLoad& load, const ClusterSpec& cluster);
nlohmann::json to_json(const std::vector<ServingForecast>& front, const ServingLoad& load);

}  // namespace weft
