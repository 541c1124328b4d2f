// What a loss costs: models of several sizes on several numbers of devices, each with the batch that gets there
// soonest.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/forecast/layout_search.h"
#include "weft/forecast/scaling_law.h"

namespace weft {

struct LossAsk {
  double target = 0;  // a loss to reach; 0: none
  double budget = 0;  // what a run may cost, and how long it may take: the loss that it reaches then; 0: no such limit
  double deadline_s = 0;
  std::vector<int64_t> device_counts;  // ascending
  double reserve_bytes = 0;            // of a device's memory that a layout must leave
  int threads = 1;
};

struct LossModel {
  std::string name;
  HfConfig config;
};

// A model on so many devices, in the best layout and with the best batch that were found.
struct LossRow {
  std::string model;
  double parameters = 0;
  int64_t devices = 1;
  std::string why_not = {};  // where no layout fits: what comes nearest; the rest is then nothing
  LayoutChoice layout = {};
  int64_t batch = 1;  // sequences of a step
  double batch_tokens = 0, step_s = 0;
  double slower = 1;  // by failures, where the cluster says how many there are
  int64_t memory_bytes = 0;
  // To the target; infinite where the model never has it.
  double tokens = 0, run_s = 0, price = 0;
  LawRange run_range = {};
  // Within budget and deadline.
  double spent_s = 0, spent_tokens = 0, loss = 0;
  LawRange loss_range = {};
};

struct LossPlan {
  LossLaw law;
  std::vector<LossRow> rows;              // models as given, each on ascending numbers of devices
  std::vector<std::string> no_help = {};  // beyond which number more devices no longer help a model, a sentence each
};

// The recipe's batch, and 4, 16 and 64 times it, are tried: as long as larger ones get there sooner. Throws ConfigError
// where the ask needs a price that the cluster does not have, or a law says nothing of a model (experts, beside a
// published law; trained weights; another objective), and what searches throw.
LossPlan plan_losses(const Recipe& recipe, const std::vector<LossModel>& models, const ClusterSpec& cluster,
                     const Profiles& profiles, const LossLaw& law, const LossAsk& ask);

std::string to_string(const LossPlan& plan, const LossAsk& ask, const ClusterSpec& cluster);
nlohmann::json to_json(const LossPlan& plan, const LossAsk& ask);

}  // namespace weft
