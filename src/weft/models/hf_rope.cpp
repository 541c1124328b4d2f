#include "weft/models/hf_rope.h"

#include <cmath>

#include "weft/base/error.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using IntRange = JsonFields::IntRange;

constexpr double kSmallest = 1e-6;  // of numbers that something is divided by

// The kind of scaling; older files call the field "type".
std::string rope_type_of(HfFields& rope) {
  const std::string older = rope.string("type", "default");
  return rope.string("rope_type", older);
}

void read_llama3(HfFields& rope, RopeSpec& spec) {
  spec.scaling = RopeSpec::Scaling::llama3;
  spec.factor = rope.number("factor", {.min = kSmallest});
  spec.low_freq_factor = rope.number("low_freq_factor", {.min = kSmallest});
  spec.high_freq_factor = rope.number("high_freq_factor", {.min = kSmallest});
  spec.original_positions = rope.integer("original_max_position_embeddings", {});
  if (spec.high_freq_factor <= spec.low_freq_factor)
    rope.refuse("high_freq_factor", "it must be larger than low_freq_factor");
}

// What both kinds below call the length that the model was first trained for; older files state it beside the scaling.
int64_t read_original(HfFields& rope, HfFields& fields, std::optional<int64_t> fallback = {}) {
  const char* key = "original_max_position_embeddings";
  if (fields.has(key)) fallback = fields.integer(key, {.min = 2});
  return rope.integer(key, {.min = 2}, fallback);
}

// Cosines and sines are multiplied by m(1), or by m(mscale) / m(mscale_all_dim) where both are given; scores by
// m(mscale_all_dim).
void read_magnitudes(HfFields& rope, RopeSpec& spec) {
  const auto m = [&](double scale) { return spec.factor > 1 ? 0.1 * scale * std::log(spec.factor) + 1 : 1; };
  const double scale = rope.number("mscale", {.min = 0}, 0), all = rope.number("mscale_all_dim", {.min = 0}, 0);
  const double usual = scale > 0 && all > 0 ? m(scale) / m(all) : m(1);
  spec.magnitude = rope.number("attention_factor", {.min = kSmallest}, usual);
  if (all > 0) spec.score_magnitude = m(all);
}

void read_yarn(HfFields& rope, HfFields& fields, const RopeSizes& sizes, RopeSpec& spec) {
  spec.scaling = RopeSpec::Scaling::yarn;
  spec.factor = rope.number("factor", {.min = 1});
  spec.beta_fast = rope.number("beta_fast", {.min = kSmallest}, 32);
  spec.beta_slow = rope.number("beta_slow", {.min = kSmallest}, 1);
  spec.truncate = rope.flag("truncate", true);
  spec.original_positions = read_original(rope, fields, sizes.max_positions);
  read_magnitudes(rope, spec);
  if (spec.beta_fast < spec.beta_slow) rope.refuse("beta_fast", "it must not be smaller than beta_slow");
  if (spec.theta <= 1) fields.refuse("rope_theta", "with yarn it must be larger than 1");
}

std::vector<double> read_factors(HfFields& rope, std::string_view key, int64_t pairs) {
  const Json& list = rope.take(key).list(key, "a list of numbers");
  std::vector<double> factors;
  for (const Json& x : list)
    if (x.is_number() && x.get<double>() >= kSmallest) factors.push_back(x.get<double>());
  if (int64_t(factors.size()) != pairs || factors.size() != list.size())
    rope.fields().fail(key, fmt::format("{} positive numbers, one for each pair that turns", pairs));
  return factors;
}

void read_longrope(HfFields& rope, HfFields& fields, const RopeSizes& sizes, RopeSpec& spec) {
  const int64_t width = spec.width > 0 ? spec.width : sizes.head_dim;
  spec.scaling = RopeSpec::Scaling::longrope;
  spec.short_factors = read_factors(rope, "short_factor", width / 2);
  spec.long_factors = read_factors(rope, "long_factor", width / 2);
  spec.original_positions = read_original(rope, fields);
  const double longer = double(sizes.max_positions) / double(spec.original_positions);
  const double factor = rope.number("factor", {.min = kSmallest}, longer);
  const double usual = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(double(spec.original_positions)));
  spec.magnitude = rope.number("attention_factor", {.min = kSmallest}, usual);
}

void read_scaling(HfFields rope, HfFields& fields, const RopeSizes& sizes, RopeSpec& spec) {
  const std::string type = rope_type_of(rope);
  if (rope.has("rope_theta")) spec.theta = rope.number("rope_theta", {.min = kSmallest});
  if (type == "llama3") {
    read_llama3(rope, spec);
  } else if (type == "linear") {
    spec.scaling = RopeSpec::Scaling::linear;
    spec.factor = rope.number("factor", {.min = kSmallest});
  } else if (type == "yarn") {
    read_yarn(rope, fields, sizes, spec);
  } else if (type == "longrope" || type == "su") {
    read_longrope(rope, fields, sizes, spec);
  } else if (type != "default") {
    rope.refuse(rope.has("rope_type") ? "rope_type" : "type", "weft does default, linear, llama3, yarn and longrope");
  }
  for (const auto& [key, value] : rope.fields().json().items()) {
    if (rope.was_taken(key) || value.is_null() || (key == "partial_rotary_factor" && value == 1)) continue;
    rope.refuse(key, fmt::format("weft does not know this field of {} scaling", type));
  }
}

// "layer_types" of newer files, where they are there.
std::optional<std::vector<bool>> read_sliding_layers(HfFields& fields, int64_t num_layers) {
  if (!fields.has("layer_types")) return std::nullopt;
  const Json& types = fields.value("layer_types");
  if (!types.is_array() || int64_t(types.size()) != num_layers)
    fields.fields().fail("layer_types", fmt::format("one name for each of the {} layers", num_layers));
  std::vector<bool> sliding;
  for (const Json& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      fields.refuse("layer_types", fmt::format("{}: weft does full_attention and sliding_attention", shown(type)));
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

// The stated width of the window; 4096 where nothing is said, 0 for null.
int64_t read_width(HfFields& fields, int64_t usual = 4096) {
  if (fields.absent("sliding_window")) return usual;
  return fields.has("sliding_window") ? fields.integer("sliding_window", IntRange{}) : 0;
}

int64_t read_width_or_none(HfFields& fields) { return fields.has("sliding_window") ? read_width(fields) : 0; }

// Which layers of its families with experts have one, transformers has said in several ways.
std::vector<int64_t> qwen_windows(HfFields& fields, bool with_experts, int64_t num_layers) {
  const bool use = fields.flag("use_sliding_window", false);
  if (use && with_experts && !fields.has("layer_types"))
    fields.refuse("use_sliding_window", "say by layer_types which layers have sliding_attention");
  const int64_t width = use ? read_width(fields) : 0;
  fields.take("sliding_window");
  const int64_t first = fields.integer("max_window_layers", {.min = 0}, 28);
  const auto sliding = read_sliding_layers(fields, num_layers);
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < num_layers; ++i) {
    const bool slides = sliding ? (*sliding)[size_t(i)] : i >= first;
    if (sliding && slides && width == 0)
      fields.refuse("layer_types", "a layer has sliding_attention, but no window is switched on (use_sliding_window)");
    windows.push_back(slides ? width : 0);
  }
  return windows;
}

// gemma and gpt-oss: every layer but each `pattern`-th has a window, unless "layer_types" say which.
std::vector<int64_t> alternating_windows(HfFields& fields, int64_t width, int64_t pattern, int64_t num_layers) {
  const auto sliding = read_sliding_layers(fields, num_layers);
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < num_layers; ++i) {
    const bool slides = sliding ? (*sliding)[size_t(i)] : (i + 1) % pattern != 0;
    if (slides && width == 0) fields.refuse("sliding_window", "some layers have sliding_attention");
    windows.push_back(slides ? width : 0);
  }
  return windows;
}

// Files that state "layer_types" have this beside them, where it says nothing.
int64_t read_pattern(HfFields& fields) {
  const int64_t newer = fields.integer("_sliding_window_pattern", {.min = 1}, 6);
  return fields.integer("sliding_window_pattern", {.min = 1}, newer);
}

// Every layer has the same; "layer_types" may only repeat it.
std::vector<int64_t> equal_windows(HfFields& fields, int64_t width, int64_t num_layers) {
  const auto sliding = read_sliding_layers(fields, num_layers);
  if (sliding && *sliding != std::vector<bool>(size_t(num_layers), width != 0))
    fields.refuse("layer_types", "all layers of this kind of model attend alike");
  return std::vector<int64_t>(size_t(num_layers), width);
}

}  // namespace

// "partial_rotary_factor": the first so many numbers of a head turn, of a family that has it.
int64_t read_turned(HfFields& fields, int64_t head_dim) {
  const auto turned = int64_t(double(head_dim) * fields.number("partial_rotary_factor", {.min = 0, .max = 1}, 1));
  if (turned < 2 || turned % 2 != 0)
    fields.refuse("partial_rotary_factor", fmt::format("{} of {} numbers of a head cannot turn", turned, head_dim));
  return turned == head_dim ? 0 : turned;
}

RopeSpec read_rope(HfFields& fields, const RopeSizes& sizes) {
  RopeSpec spec;
  if (sizes.partial) spec.width = read_turned(fields, sizes.head_dim);
  const bool newer = fields.has("rope_parameters"), older = fields.has("rope_scaling");
  if (newer && older && fields.value("rope_parameters") != fields.value("rope_scaling"))
    fields.refuse("rope_scaling", "rope_parameters are there too, and say something else");
  const bool has_theta = fields.has("rope_theta");
  const double theta = spec.theta = fields.number("rope_theta", {.min = kSmallest}, sizes.usual_theta);
  if (newer)
    read_scaling(fields.object("rope_parameters"), fields, sizes, spec);
  else if (older)
    read_scaling(fields.object("rope_scaling"), fields, sizes, spec);
  if (has_theta && spec.theta != theta) fields.refuse("rope_theta", fmt::format("it is {} elsewhere", spec.theta));
  return spec;
}

RopePair read_rope_pair(HfFields& fields, const RopeSizes& sizes) {
  RopePair pair{.sliding = {.theta = fields.number("rope_local_base_freq", {.min = kSmallest}, 10000)}};
  const bool for_each_kind =
      fields.has("rope_parameters") && fields.value("rope_parameters").contains("full_attention");
  if (!for_each_kind) {
    pair.full = read_rope(fields, sizes);
    return pair;
  }
  HfFields both = fields.object("rope_parameters");
  pair.full.theta = fields.number("rope_theta", {.min = kSmallest}, sizes.usual_theta);
  read_scaling(both.object("full_attention"), fields, sizes, pair.full);
  if (both.has("sliding_attention")) read_scaling(both.object("sliding_attention"), fields, sizes, pair.sliding);
  for (const auto& [key, value] : both.fields().json().items())
    if (!both.was_taken(key)) both.refuse(key, "weft does full_attention and sliding_attention");
  return pair;
}

std::vector<int64_t> read_windows(HfFields& fields, Family family, int64_t num_layers) {
  switch (family) {
    case Family::qwen2:
    case Family::qwen3:
      return qwen_windows(fields, false, num_layers);
    case Family::qwen2_moe:
    case Family::qwen3_moe:
      return qwen_windows(fields, true, num_layers);
    case Family::gemma2:
      return alternating_windows(fields, read_width(fields), 2, num_layers);
    case Family::gemma3:
      return alternating_windows(fields, read_width(fields), read_pattern(fields), num_layers);
    case Family::gpt_oss:
      return alternating_windows(fields, read_width(fields, 128), 2, num_layers);
    case Family::mixtral:
    case Family::phi3:
      return equal_windows(fields, read_width_or_none(fields), num_layers);
    case Family::mistral:
      break;
    default:
      if (!fields.flag("use_sliding_window", true)) {  // then the others say nothing
        fields.take("sliding_window");
        fields.take("max_window_layers");
      }
      return equal_windows(fields, 0, num_layers);
  }
  const int64_t width = read_width(fields);
  if (!fields.flag("use_sliding_window", true) && width != 0)
    fields.refuse("use_sliding_window", fmt::format("mistral always uses its sliding_window, here {}", width));
  return equal_windows(fields, width, num_layers);
}

}  // namespace weft
