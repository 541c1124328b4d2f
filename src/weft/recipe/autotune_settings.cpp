#include "weft/recipe/autotune_settings.h"

#include <algorithm>
#include <array>

#include "weft/base/error.h"

namespace weft {
namespace {

// Schedules whose stages have the same blocks.
constexpr std::array kSchedulesToTry{ScheduleKind::one_f_one_b, ScheduleKind::zb_h1};
constexpr std::array kKindsToTry{CpCommType::p2p, CpCommType::all_gather, CpCommType::a2a};

template <class Choice, size_t kCount>
bool is_one_of(const std::array<Choice, kCount>& all, Choice one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool may_change_order(const Recipe& r) { return r.train.numerics != NumericsChoice::invariant; }

int64_t samples_of_rank(const Recipe& r) { return r.train.global_batch_size / r.parallel.dp; }

// Whether a rank's samples, and those of an evaluation, are a whole number of micro-batches of this size.
bool may_be_size(const Recipe& r, int64_t size) {
  return size >= 1 && samples_of_rank(r) % size == 0 && r.train.eval_iters * r.train.micro_batch_size % size == 0;
}
// In the order in which they are tried: larger ones as long as that gains; where already the first does not, smaller
// ones.
std::vector<int64_t> sizes_beside(const Recipe& r, int64_t now) {
  std::vector<int64_t> sizes;
  for (const int64_t size : {now * 2, now / 2})
    if (may_be_size(r, size)) sizes.push_back(size);
  return sizes;
}

bool tunes_size(const Recipe& r) {
  // Whether the rows of experts have room depends on the tokens that come together.
  return may_change_order(r) && !r.moe.capacity_factor && !sizes_beside(r, r.train.micro_batch_size).empty();
}
bool tunes_schedule(const Recipe& r) {
  return r.parallel.pp > 1 && is_one_of(kSchedulesToTry, r.parallel.pipeline_schedule);
}
bool tunes_kind(const Recipe& r) {
  return r.parallel.cp > 1 && may_change_order(r) && is_one_of(kKindsToTry, r.parallel.cp_comm_type);
}

}  // namespace

TunedSettings tuned_settings_of(const Recipe& r) {
  return {r.train.micro_batch_size, r.parallel.pipeline_schedule, r.parallel.cp_comm_type};
}

Recipe with_settings(const Recipe& recipe, const TunedSettings& settings) {
  Recipe r = recipe;
  r.train.autotune = false;
  r.train.micro_batch_size = settings.micro_batch_size;
  r.train.eval_iters = recipe.train.eval_iters * recipe.train.micro_batch_size / settings.micro_batch_size;
  r.parallel.pipeline_schedule = settings.pipeline_schedule;
  r.parallel.cp_comm_type = settings.cp_comm_type;
  return r;
}

std::string settings_text(const TunedSettings& s, const Recipe& recipe) {
  const TunedSettings own = tuned_settings_of(recipe);
  std::string text;
  const auto add = [&](const std::string& one) { text += (text.empty() ? "" : ", ") + one; };
  if (s.micro_batch_size != own.micro_batch_size) add(fmt::format("train.micro_batch_size = {}", s.micro_batch_size));
  if (s.pipeline_schedule != own.pipeline_schedule)
    add(fmt::format("parallel.pipeline_schedule = \"{}\"", name_of(s.pipeline_schedule)));
  if (s.cp_comm_type != own.cp_comm_type) add(fmt::format("parallel.cp_comm_type = \"{}\"", s.cp_comm_type));
  return text.empty() ? "as the recipe says" : text;
}

std::vector<std::string> settings_to_tune(const Recipe& r) {
  std::vector<std::string> all;
  if (tunes_size(r)) all.push_back("train.micro_batch_size");
  if (tunes_schedule(r)) all.push_back("parallel.pipeline_schedule");
  if (tunes_kind(r)) all.push_back("parallel.cp_comm_type");
  return all;
}

bool may_be_chosen(const Recipe& r, const TunedSettings& s) {
  const TunedSettings own = tuned_settings_of(r);
  return (s.micro_batch_size == own.micro_batch_size || (tunes_size(r) && may_be_size(r, s.micro_batch_size))) &&
         (s.pipeline_schedule == own.pipeline_schedule ||
          (tunes_schedule(r) && is_one_of(kSchedulesToTry, s.pipeline_schedule))) &&
         (s.cp_comm_type == own.cp_comm_type || (tunes_kind(r) && is_one_of(kKindsToTry, s.cp_comm_type)));
}

std::optional<TunedSettings> Tuner::next() const {
  if (asked_.empty()) return best_;
  if (asked_.size() >= kMostTrials) return {};
  TunedSettings trial = best_;
  if (tunes_schedule(recipe_))
    for (const ScheduleKind kind : kSchedulesToTry)
      if (schedules_.count(kind) == 0) {
        trial.pipeline_schedule = kind;
        return trial;
      }
  if (tunes_kind(recipe_))
    for (const CpCommType kind : kKindsToTry)
      if (kinds_.count(kind) == 0) {
        trial.cp_comm_type = kind;
        return trial;
      }
  if (!tunes_size(recipe_)) return {};
  for (const int64_t size : sizes_beside(recipe_, best_.micro_batch_size))
    if (sizes_.count(size) == 0) {
      trial.micro_batch_size = size;
      return trial;
    }
  return {};
}

void Tuner::tell(const TunedSettings& settings, std::optional<double> seconds) {
  asked_.insert(settings);
  sizes_.insert(settings.micro_batch_size);
  schedules_.insert(settings.pipeline_schedule);
  kinds_.insert(settings.cp_comm_type);
  if (!seconds || (best_s_ > 0 && *seconds > (1 - kTrialGain) * best_s_)) return;
  best_ = settings;
  best_s_ = *seconds;
}

}  // namespace weft
