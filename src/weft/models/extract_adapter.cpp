#include "weft/models/extract_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <tuple>

#include "weft/base/error.h"
#include "weft/base/low_rank.h"
#include "weft/checkpoint/shared_writer.h"
#include "weft/models/hf_names.h"
#include "weft/models/weight_source.h"
#include "weft/nn/embedding.h"

namespace weft {
namespace {

constexpr std::string_view kScore = "score.weight";  // of a reward model: it goes along in full

[[noreturn]] void refuse(const ExtractRequest& r, const std::string& why) {
  throw ConfigError(fmt::format("--lora-of {}: {}", r.base.string(), why));
}

void require_full(const ExtractRequest& r, const std::filesystem::path& model, const HfConfig& config) {
  if (config.adapter)
    refuse(r, fmt::format("{} is an adapter: weft merge makes a full model of it and its base", model.string()));
}

// Throws where the models differ in more than numbers.
void require_same_shape(const ExtractRequest& r, const ModelSpec& model, const ModelSpec& base) {
  const auto numbers = [](const ModelSpec& m) {
    return std::tuple(m.num_heads, m.num_kv_heads, m.head_dim, m.norm, m.norm_eps, m.norm_offset, m.mlp,
                      m.attention_scale, m.attention_softcap, m.embedding_scale, m.logit_softcap);
  };
  if (model.rope != base.rope || model.layers != base.layers || numbers(model) != numbers(base))
    refuse(r, fmt::format("{} differs from it in more than its weights (heads, norms, caps, rotations or windows in "
                          "config.json), which an adapter cannot hold",
                          r.model.string()));
  const std::vector<HfTensor> here = hf_tensors(model), there = hf_tensors(base);
  const size_t both = std::min(here.size(), there.size());
  const auto words = [](const HfTensor& t) { return fmt::format("{} [{}]", t.name, fmt::join(t.shape, ", ")); };
  for (size_t i = 0; i < both; ++i)
    if (words(here[i]) != words(there[i]))
      refuse(r, fmt::format("another model: it has {} where {} has {}", words(there[i]), r.model.string(),
                            words(here[i])));
  if (here.size() != there.size())
    refuse(r, fmt::format("another model: it has {} tensors, {} has {}", there.size(), r.model.string(), here.size()));
}

struct Difference {
  int64_t rows = 0, cols = 0;
  std::vector<float> values = {};
  double squares() const {
    return std::accumulate(values.begin(), values.end(), 0.0, [](double sum, float x) { return sum + double(x) * x; });
  }
};

std::vector<float> read_whole(const WeightSource& source, size_t i) {
  const HfTensor& t = source.tensors()[i];
  std::vector<float> values(size_t(t.rows * t.cols()));
  source.read(i, {},
              {.data = values.data(), .dtype = DType::f32, .rows = t.rows, .cols = t.cols(), .row_stride = t.cols()});
  return values;
}

Difference difference_of(const ExtractRequest& r, const WeightSource& model, const WeightSource& base, size_t i) {
  const HfTensor& t = base.tensors()[i];
  Difference d{t.rows, t.cols(), read_whole(model, i)};
  const std::vector<float> there = read_whole(base, i);
  for (size_t k = 0; k < there.size(); ++k) d.values[k] -= there[k];
  if (!std::all_of(d.values.begin(), d.values.end(), [](float x) { return std::isfinite(x); }))
    throw FileError(
        fmt::format("{}: {} has numbers that are not finite, or so large that their difference to those of "
                    "{} is not: there is no adapter of them",
                    r.model.string(), t.name, r.base.string()));
  return d;
}

void write_factor(SharedWriter& writer, const HfTensor& t, std::span<const double> values) {
  int64_t at = 0;
  stream_matrix({.data = values.data(), .dtype = DType::f64, .rows = t.rows, .cols = t.cols(), .row_stride = t.cols()},
                FileDType::f32, t.transposed, [&](std::span<const std::byte> bytes) {
                  writer.write(t.name, at, bytes);
                  at += int64_t(bytes.size());
                });
}

}  // namespace

HfConfig extracted_config(const ExtractRequest& r) {
  const HfConfig model = read_hf_config(r.model);
  HfConfig base = read_hf_config(r.base);
  require_full(r, r.model, model);
  require_full(r, r.base, base);
  require_same_shape(r, model.spec, base.spec);
  adapt(base,
        {.base = r.base.string(),
         .rank = r.rank,
         .alpha = double(r.rank),
         .trains_score = base.spec.head == HeadKind::score,
         .targets = r.targets},
        fmt::format("--lora-of {}", r.base.string()));
  for (const AdapterSpec::Target& target : base.spec.adapter->targets)
    if (target.weight == Embedding::kTable)
      refuse(r,
             fmt::format("--targets {}: a table of rows is not split in two yet; the nearest that works: the matrices "
                         "of blocks (all-linear), lm_head",
                         target.module));
  for (const HfTensor& t : adapter_tensors(base.spec))
    if (t.param != kScore && std::min(t.rows, t.cols()) < r.rank)
      refuse(r, fmt::format("--rank {} is more than {} [{}, {}] can have: at most {}", r.rank, t.name, t.rows, t.cols(),
                            std::min(t.rows, t.cols())));
  return base;
}

Extracted write_extracted(const ExtractRequest& r, const HfConfig& config, const SafetensorsLayout& layout,
                          const std::filesystem::path& out, const std::function<void(int64_t, int64_t)>& told) {
  const auto model = open_weights(r.model, read_hf_config(r.model).spec), base = open_weights(r.base, config.spec);
  const std::vector<AdapterSpec::Target>& targets = config.spec.adapter->targets;
  const std::vector<HfTensor> factors = adapter_tensors(config.spec);  // of each target A, then B
  Extracted all;
  double squares = 0, left = 0, others = 0;
  std::map<std::string, size_t> target_of;
  for (size_t i = 0; i < targets.size(); ++i) target_of[targets[i].module + ".weight"] = i;
  SharedWriter writer(out, layout);
  for (size_t i = 0; i < base->tensors().size(); ++i) {
    const HfTensor& t = base->tensors()[i];
    const Difference d = difference_of(r, *model, *base, i);
    const double of_this = d.squares();
    if (t.param == kScore) {
      const std::vector<float> score = read_whole(*model, i);
      write_factor(writer, factors.back(), std::vector<double>(score.begin(), score.end()));
      continue;
    }
    const auto target = target_of.find(t.name);
    if (target == target_of.end()) {
      if (of_this > 0) all.others.push_back(t.name);
      others += of_this;
      continue;
    }
    const LowRank near = nearest_of_rank(d.values, d.rows, d.cols, r.rank, r.threads);
    const double of_left = squares_left(d.values, d.rows, d.cols, near, r.threads);
    const double share = of_this > 0 ? std::sqrt(of_left / of_this) : 0;
    if (all.worst.empty() || share > all.worst_share) all.worst = t.name, all.worst_share = share;
    squares += of_this;
    left += of_left;
    const size_t first = target->second * 2;
    write_factor(writer, factors[first], near.right);
    write_factor(writer, factors[first + 1], near.left);
    told(++all.num_matrices, int64_t(targets.size()));
  }
  if (!(squares > 0))
    refuse(r, fmt::format("no matrix of {} that gets an adapter differs from it: the adapter would be empty{}",
                          r.model.string(),
                          all.others.empty() ? "" : fmt::format("; {} differs, which has none", all.others[0])));
  writer.sync();
  model->check_whole();
  base->check_whole();
  all.all = std::sqrt(squares);
  all.left = std::sqrt(left);
  all.others_all = std::sqrt(others);
  return all;
}

}  // namespace weft
