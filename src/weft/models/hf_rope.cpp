#include "weft/models/hf_rope.h"

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

void read_scaling(HfFields rope, RopeSpec& spec) {
  const std::string type = rope_type_of(rope);
  if (rope.has("rope_theta")) spec.theta = rope.number("rope_theta", {.min = kSmallest});
  if (type == "llama3") {
    read_llama3(rope, spec);
  } else if (type == "linear") {
    spec.scaling = RopeSpec::Scaling::linear;
    spec.factor = rope.number("factor", {.min = kSmallest});
  } else if (type != "default") {
    rope.refuse(rope.has("rope_type") ? "rope_type" : "type", "weft does default, linear and llama3");
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
int64_t read_width(HfFields& fields) {
  if (fields.absent("sliding_window")) return 4096;
  return fields.has("sliding_window") ? fields.integer("sliding_window", IntRange{}) : 0;
}

int64_t read_width_or_none(HfFields& fields) { return fields.has("sliding_window") ? read_width(fields) : 0; }

std::vector<int64_t> qwen_windows(HfFields& fields, int64_t num_layers) {
  const bool use = fields.flag("use_sliding_window", false);
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

// Every layer has the same; "layer_types" may only repeat it.
std::vector<int64_t> equal_windows(HfFields& fields, int64_t width, int64_t num_layers) {
  const auto sliding = read_sliding_layers(fields, num_layers);
  if (sliding && *sliding != std::vector<bool>(size_t(num_layers), width != 0))
    fields.refuse("layer_types", "all layers of this kind of model attend alike");
  return std::vector<int64_t>(size_t(num_layers), width);
}

}  // namespace

RopeSpec read_rope(HfFields& fields) {
  RopeSpec spec;
  const bool newer = fields.has("rope_parameters"), older = fields.has("rope_scaling");
  if (newer && older && fields.value("rope_parameters") != fields.value("rope_scaling"))
    fields.refuse("rope_scaling", "rope_parameters are there too, and say something else");
  const bool has_theta = fields.has("rope_theta");
  const double theta = spec.theta = fields.number("rope_theta", {.min = kSmallest}, 10000);
  if (newer)
    read_scaling(fields.object("rope_parameters"), spec);
  else if (older)
    read_scaling(fields.object("rope_scaling"), spec);
  if (has_theta && spec.theta != theta) fields.refuse("rope_theta", fmt::format("it is {} elsewhere", spec.theta));
  return spec;
}

std::vector<int64_t> read_windows(HfFields& fields, Family family, int64_t num_layers) {
  if (family == Family::qwen2 || family == Family::qwen3 || family == Family::qwen2_moe || family == Family::qwen3_moe)
    return qwen_windows(fields, num_layers);
  if (family == Family::mixtral) return equal_windows(fields, read_width_or_none(fields), num_layers);
  if (family != Family::mistral) {
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
