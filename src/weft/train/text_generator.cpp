#include "weft/train/text_generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/rng.h"
#include "weft/base/threads.h"
#include "weft/device/tensor_values.h"
#include "weft/models/hf_weights.h"
#include "weft/ops/dry/dry_backend.h"
#include "weft/train/checkpoint_folders.h"

namespace weft {

std::filesystem::path model_folder_of(const std::filesystem::path& path,
                                      const std::function<void(const std::string&)>& say) {
  namespace fs = std::filesystem;
  require_no_file_of_weights(path, "the model");
  const ProcessMesh alone = single_mesh();
  std::error_code ignored;
  const bool is_run = fs::exists(path / "recipe.toml", ignored) && fs::exists(path / "checkpoints", ignored);
  if (is_checkpoint(path) || (!is_run && fs::exists(path / "config.json", ignored)) || !why_no_model(path).empty()) {
    const std::string note = require_whole(path, CheckpointPart::model, *alone.world, usable_cores());
    if (!note.empty()) say("note: " + note);
    return path;
  }
  const FoundCheckpoint found = find_checkpoint(path, CheckpointPart::model, *alone.world, usable_cores());
  for (const std::string& note : found.notes) say(note);
  if (found.path) return *found.path;
  throw FileError(fmt::format("{}: neither a model's folder (config.json) nor a run with checkpoints", path.string()));
}

int32_t sample_token(std::span<const double> logits, const Sampling& how, uint64_t index) {
  for (const double x : logits)
    if (std::isnan(x)) throw NumericsError("the model's logits are not numbers: are its weights finite?");
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)] : a < b;
  };
  if (how.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  const size_t k = how.top_k > 0 ? std::min(size_t(how.top_k), order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(k), order.end(), likelier);
  order.resize(k);
  std::vector<double> weight(k);
  const double most = logits[size_t(order[0])];
  for (size_t i = 0; i < k; ++i) weight[i] = std::exp((logits[size_t(order[i])] - most) / how.temperature);
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  double held = 0;
  size_t kept = 0;
  while (kept < k && (kept == 0 || held < how.top_p * all)) held += weight[kept++];
  double left = random_uniform(rng_key(how.seed, "sampling"), index) * held;
  for (size_t i = 0; i < kept; ++i) {
    left -= weight[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

// Forgetting a quarter at a time costs three tokens fed again for one that is new.
int64_t least_seen(int64_t context) { return std::max<int64_t>(1, context - std::max<int64_t>(1, context / 4)); }

TextGenerator::TextGenerator(const std::filesystem::path& folder, const Spec& spec)
    : config_(read_hf_config(folder)),
      machine_(spec.machine),
      precision_(spec.precision),
      context_(spec.context),
      keep_first_(spec.keep_first < least_seen(spec.context) ? spec.keep_first : 0),
      max_tokens_(context_ > 0 ? std::min(spec.max_tokens, context_) : spec.max_tokens),
      max_prompt_(context_ == 0                ? spec.max_prompt
                  : spec.max_tokens > context_ ? std::max(least_seen(context_), std::min(spec.max_prompt, context_))
                                               : spec.max_prompt),
      mesh_(single_mesh()),
      plan_(measure()),
      values_("parameters", plan_.params, machine_.memory),
      constants_("constants and cache", plan_.constants, machine_.memory),
      scratch_("scratch", plan_.scratch, machine_.memory),
      workspace_("workspace", plan_.workspace, machine_.memory),
      staging_(machine_.memory, max_prompt_),
      params_(precision_, {}, single_mesh(), WeightUse::frozen),
      model_(params_, config_.spec, {.layers = {}, .max_positions = max_tokens_}),
      backend_(machine_.make_backend(workspace_)),
      logits_(size_t(config_.spec.vocab_size)) {
  params_.allocate_frozen(values_, values_);
  model_.allocate_constants(constants_, precision_);
  caches_ = model_.make_caches(constants_, precision_, max_tokens_);
  read_hf_weights(folder, config_.spec, params_);
  params_.masters_changed(*backend_);
}

// The same passes, dry: the longest prompt at once, then one token.
TextGenerator::Plan TextGenerator::measure() const {
  if (config_.spec.learned_positions && max_tokens_ > config_.spec.max_positions) {
    throw ConfigError(fmt::format("{} tokens at once: the model has a table of {} positions; ask for fewer",
                                  max_tokens_, config_.spec.max_positions));
  }
  Arena values("values"), constants("constants"), scratch("scratch");
  ParamStore params(precision_, {}, single_mesh(), WeightUse::frozen);
  Transformer model(params, config_.spec, {.layers = {}, .max_positions = max_tokens_});
  params.allocate_frozen(values, values);
  model.allocate_constants(constants, precision_);
  auto caches = model.make_caches(constants, precision_, max_tokens_);
  DryBackend backend(*machine_.workspace_model);
  const std::vector<int32_t> ids(size_t(max_prompt_), 0);
  pass(backend, model, caches, scratch, ids, nullptr);
  for (KvCache& c : caches) c.count = max_tokens_ - 1;  // the longest that a token can look back
  pass(backend, model, caches, scratch, std::span(ids).first(1), nullptr);
  return {values.peak(), constants.peak(), scratch.peak(), backend.workspace_bytes()};
}

Tensor TextGenerator::pass(Backend& backend, const Transformer& model, std::vector<KvCache>& caches, Arena& scratch,
                           std::span<const int32_t> ids, BatchStaging* staging) const {
  scratch.rewind();
  MicroBatch batch = alloc_micro_batch(scratch, int64_t(ids.size()), precision_.stat);
  const int64_t first = caches[0].count;
  const LoadMicroBatch load = [&](MicroBatch& b) {
    std::copy(ids.begin(), ids.end(), b.ids.as<int32_t>());
    std::iota(b.positions.as<int32_t>(), b.positions.as<int32_t>() + ids.size(), int32_t(first));
  };
  if (staging != nullptr) staging->load(load, batch, backend);
  Pass p{backend, mesh_, precision_, batch, &scratch, &scratch, &scratch, &scratch, &scratch};
  Tensor logits = p.stat(&scratch, {1, config_.spec.vocab_size}, tokens(Spmd::Invariant));
  model.decode(p, caches, logits);
  backend.wait_all();
  return logits;
}

std::span<const double> TextGenerator::feed(std::span<const int32_t> ids) {
  const auto n = int64_t(ids.size());
  const bool forgets = context_ > 0 && context_ <= max_tokens_;
  WEFT_CHECK(n > 0 && (forgets || (n <= max_prompt_ && fed_ + n <= max_tokens_)), "{} tokens after {}", n, fed_);
  for (int32_t id : ids) {
    if (id < 0 || id >= config_.spec.vocab_size) {
      throw ConfigError(fmt::format("token {} is not in the model's vocabulary of {}", id, config_.spec.vocab_size));
    }
  }
  fed_ += n;
  if (forgets) {
    seen_.insert(seen_.end(), ids.begin(), ids.end());
    ids = std::span(seen_).last(size_t(n));
    if (int64_t(seen_.size()) > context_) ids = forget();
  }
  const Tensor logits = pass(*backend_, model_, caches_, scratch_, ids, &staging_);
  for_each_value(*machine_.memory, logits, [&](int64_t, int64_t i, double x) { logits_[size_t(i)] = x; });
  return logits_;
}

// The tokens that are still seen, as a text that begins with them: keys and values of others are in what was kept of
// them, so all are fed again.
std::span<const int32_t> TextGenerator::forget() {
  const auto first = seen_.begin() + std::ptrdiff_t(keep_first_);
  seen_.erase(first, seen_.end() - std::ptrdiff_t(least_seen(context_) - keep_first_));
  for (KvCache& c : caches_) c.count = 0;
  return seen_;
}

}  // namespace weft
