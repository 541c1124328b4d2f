#include "weft/verify/narrow_copy.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "weft/ops/ops.h"
#include "weft/plan/layout.h"
#include "weft/plan/teacher.h"
#include "weft/schedule/shares.h"

namespace weft {
namespace {

constexpr int64_t kLayers = 2, kHeadDim = 8, kWidth = 32, kInnerWidth = 64, kVocabulary = 96, kSequence = 16,
                  kSequences = 2, kMicroBatches = 2, kExpertWidth = 16,
                  kExperts = 4,  // on each rank
    kVector = 8;                 // elements: kernels take rows of multiples of it otherwise than others

// The smallest number of at least `least` with n's remainder modulo m; n itself where it is smaller.
int64_t like(int64_t n, int64_t least, int64_t m) {
  const int64_t small = least + ((n - least) % m + m) % m;
  return std::min(n, small);
}

// Shards of ZeRO are cut at multiples of kSumLeaf elements: whether rows of n elements, cut over tp, end there.
bool rows_end_at_leaves(int64_t n, int64_t tp) { return kSumLeaf % std::max<int64_t>(1, n / tp) == 0; }

// The same for the elements of a row: as wide a remainder, and rows are cut within where n's are.
int64_t row_like(int64_t n, int64_t least, int64_t m, int64_t tp) {
  int64_t small = like(n, least, m);
  while (small < n && rows_end_at_leaves(small, tp) != rows_end_at_leaves(n, tp)) small += m;
  return std::min(n, small);
}

// Keeps the unevenness: 0 blocks stay 0, the smallest count becomes 1, larger ones 2.
BlockLayout narrow_layout(const BlockLayout& layout) {
  int64_t fewest = 0;
  for (const int64_t n : layout)
    if (n > 0) fewest = fewest == 0 ? n : std::min(fewest, n);
  BlockLayout narrow;
  for (const int64_t n : layout) narrow.push_back(n == 0 ? 0 : n == fewest ? 1 : 2);
  return narrow;
}

void narrow_layers(Recipe& r, ModelSpec& m) {
  int64_t layers = std::min(m.num_layers, std::max<int64_t>(kLayers, pipeline_of(r).num_virtual_stages()));
  if (!r.parallel.pipeline_layout.empty()) {
    r.parallel.pipeline_layout = narrow_layout(r.parallel.pipeline_layout);
    layers = std::accumulate(r.parallel.pipeline_layout.begin(), r.parallel.pipeline_layout.end(), int64_t{0});
  }
  std::vector<LayerSpec> some;
  for (int64_t l = 0; l < layers && !m.layers.empty(); ++l) {  // from the first to the last, evenly
    LayerSpec& layer = some.emplace_back(m.layer(layers > 1 ? l * (m.num_layers - 1) / (layers - 1) : 0));
    if (layer.window > 0 && layer.window < r.train.seq_length) layer.window = std::min(layer.window, kSequence / 3);
  }
  m.layers = some;
  m.num_layers = layers;
}

// As many numbers of a head turn as there are, an even number.
void narrow_rope(RopeSpec& rope, int64_t head_dim) {
  if (rope.width > head_dim) rope.width = std::max<int64_t>(2, head_dim / 4 * 2);
  const auto pairs = size_t((rope.width > 0 ? rope.width : head_dim) / 2);
  for (std::vector<double>* factors : {&rope.short_factors, &rope.long_factors})
    if (factors->size() > pairs) factors->resize(pairs);
}

void narrow_latent(LatentSpec& l, int64_t& head_dim) {
  for (int64_t* dim : {&l.nope_dim, &l.rope_dim, &l.v_dim}) *dim = row_like(*dim, kHeadDim, kVector, 1);
  for (int64_t* rank : {&l.q_rank, &l.kv_rank})
    if (*rank > 0) *rank = row_like(*rank, kWidth / 2, kVector, 1);
  head_dim = l.nope_dim + l.rope_dim;
}

void narrow_heads(ModelSpec& m, const Recipe::Parallel& p) {
  const bool one = p.cp_comm_type == CpCommType::a2a, groups = p.cp_comm_type == CpCommType::a2a_p2p;
  const int64_t ranks = p.tp * (one ? p.cp : groups ? p.cp_a2a_size : 1);  // among which heads are dealt out
  const int64_t group = m.num_heads / m.num_kv_heads;
  if (ranks <= m.num_kv_heads) m.num_kv_heads = like(m.num_kv_heads, ranks, ranks);
  m.num_heads = group * m.num_kv_heads;
  m.head_dim = row_like(m.head_dim, kHeadDim, kVector, 1);
  if (m.latent) narrow_latent(*m.latent, m.head_dim);
  if (m.rope) narrow_rope(*m.rope, m.rope_width());
  for (LayerSpec& layer : m.layers)
    if (layer.rope) narrow_rope(*layer.rope, m.rope_width());
  if (m.mtp_block.rope) narrow_rope(*m.mtp_block.rope, m.rope_width());
}

void narrow_experts(ExpertsSpec& e, const Recipe::Parallel& p) {
  for (int64_t* width : {&e.width, &e.shared_width})
    if (*width > 0) *width = row_like(*width, std::max(p.tp, kExpertWidth), p.tp, p.tp);
  const int64_t ranks = std::lcm(p.ep, std::max<int64_t>(1, p.frozen_ep));  // a frozen model's too
  if (e.routing.groups == 1) e.count = like(e.count, std::max(e.chosen, kExperts * ranks), ranks);
}

// As unequal as few micro-batches can be: where they come out alike, the rank that has the most gets one of another's.
std::vector<int64_t> narrow_shares(const std::vector<int64_t>& shares, int64_t micro_batches) {
  std::vector<int64_t> narrow = shares_by_weight({shares.begin(), shares.end()}, micro_batches);
  if (std::adjacent_find(narrow.begin(), narrow.end(), std::not_equal_to<>()) != narrow.end()) return narrow;
  const auto most = std::max_element(shares.begin(), shares.end()),
             least = std::min_element(shares.begin(), shares.end());
  if (narrow[0] < 2) return narrow;
  ++narrow[size_t(most - shares.begin())];
  --narrow[size_t(least - shares.begin())];
  return narrow;
}

void narrow_batch(Recipe& r) {
  Recipe::Train& t = r.train;
  const Recipe::Parallel& p = r.parallel;
  const int64_t of_sample = sequences_of_sample(r);
  const int64_t tokens = t.seq_length / p.cp * t.micro_batch_size * of_sample, micro_batches = num_micro_batches_of(r);
  const int64_t of_student = p.cp > 1 ? 2 * p.cp : 1, of_teacher = p.teacher_cp > 1 ? 2 * p.teacher_cp : 1;
  const int64_t runs = std::lcm(of_student, of_teacher);  // of a sequence
  t.seq_length = runs * like(t.seq_length / runs, (kSequence + runs - 1) / runs, p.tp);
  int64_t sequences = std::min(t.micro_batch_size, kSequences);
  const auto rows = [&] { return t.seq_length / p.cp * sequences * of_sample; };
  while (sequences < t.micro_batch_size && (rows() % p.tp == 0) != (tokens % p.tp == 0)) ++sequences;
  t.micro_batch_size = sequences;
  const int64_t m = like(micro_batches, std::max(kMicroBatches, p.pp), p.pp > 1 ? p.pp : 2);
  t.global_batch_size = sequences * m * p.dp;
  if (has_unequal_shares(p)) r.parallel.micro_batches = narrow_shares(p.micro_batches, m * p.dp);
  if (!has_unequal_shares(p)) r.parallel.micro_batches.clear();
  if (r.train.objective == ObjectiveKind::grpo && t.global_batch_size % r.objective.group_size != 0)
    r.objective.group_size = t.global_batch_size;
}

// A target of an adapter with * for its numbers, since the copy has fewer layers and experts.
std::string in_any_layer(const std::string& target) {
  std::string any;
  for (size_t at = 0; at <= target.size();) {
    const size_t end = std::min(target.find('.', at), target.size());
    const std::string name = target.substr(at, end - at);
    const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
    any += (at > 0 ? "." : "") + (is_number ? "*" : name);
    at = end + 1;
  }
  return any;
}

}  // namespace

namespace {

NarrowCopy narrow_model(const Recipe& recipe, const HfConfig& config) {
  NarrowCopy copy{recipe, config};
  Recipe& r = copy.recipe;
  ModelSpec& m = copy.config.spec;
  const int64_t tp = r.parallel.tp;
  const bool beyond = m.max_positions > r.train.seq_length;
  narrow_layers(r, m);
  narrow_heads(m, r.parallel);
  if (m.has_experts()) narrow_experts(m.experts, r.parallel);
  narrow_batch(r);
  m.width = row_like(m.width, kWidth, kVector, 1);
  m.ffn_width = row_like(m.ffn_width, std::max(tp, kInnerWidth), tp, tp);
  m.vocab_size = like(m.vocab_size, std::max(tp, kVocabulary), tp);
  if (m.learned_positions) m.max_positions = r.train.seq_length + (beyond ? 1 : 0);
  r.model.init = InitChoice::random;
  r.adapter.path.clear();  // whose matrices are of another width
  for (std::string& target : r.adapter.targets) target = in_any_layer(target);
  return copy;
}

}  // namespace

// A teacher's blocks are not laid out by the recipe, and its vocabulary becomes the student's, which it was.
NarrowCopy narrow_copy(const Recipe& recipe, const HfConfig& config) {
  NarrowCopy copy = narrow_model(recipe, config);
  copy.config.teacher_top = std::min(config.teacher_top, copy.config.spec.vocab_size);
  if (!config.teacher) return copy;
  Recipe of_teacher = recipe;
  if (teacher_axes_of(recipe)) of_teacher.parallel = recipe_of_teacher_apart(recipe).parallel;
  of_teacher.parallel.pipeline_layout.clear();
  HfConfig teacher = narrow_model(of_teacher, *config.teacher).config;
  if (teacher_axes_of(recipe)) {
    const bool beyond = config.teacher->spec.max_positions > recipe.train.seq_length;
    ModelSpec& m = teacher.spec;
    m.vocab_size = copy.config.spec.vocab_size;
    if (m.learned_positions) m.max_positions = copy.recipe.train.seq_length + (beyond ? 1 : 0);
    copy.recipe.objective.top_k = std::min(recipe.objective.top_k, m.vocab_size);
  }
  teacher.has_folder = false;
  copy.config.teacher = std::make_shared<const HfConfig>(std::move(teacher));
  return copy;
}

}  // namespace weft
