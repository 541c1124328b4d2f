#include "weft/models/hf_names.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/models/hf_fields.h"
#include "weft/nn/embedding.h"
#include "weft/nn/grouped_adapter.h"
#include "weft/nn/vocabulary_head.h"

namespace weft {
namespace {

// How the norms of a block are called on disk; "" where a family has none there. Where `fused`, matrices that take the
// same input are one matrix on disk too.
struct BlockNames {
  std::string_view attn_norm = "input_layernorm", attn_added = "", mlp_norm = "post_attention_layernorm",
                   mlp_added = "";
  bool fused = false;
};
BlockNames block_names(Family family) {
  switch (family) {
    case Family::gemma2:
    case Family::gemma3:
      return {.attn_added = "post_attention_layernorm",
              .mlp_norm = "pre_feedforward_layernorm",
              .mlp_added = "post_feedforward_layernorm"};
    case Family::olmo2:
      return {.attn_norm = "",
              .attn_added = "post_attention_layernorm",
              .mlp_norm = "",
              .mlp_added = "post_feedforward_layernorm"};
    case Family::phi3:
      return {.fused = true};
    default:
      return {};
  }
}

// Writes down the tensors of one model.
class Lister {
 public:
  explicit Lister(const ModelSpec& model) : m_(model), names_(block_names(model.family)) {}

  std::vector<HfTensor> list() {
    m_.family == Family::gpt2 ? list_gpt2() : list_llama_like();
    if (m_.head == HeadKind::score)
      add("score.weight", {1, m_.width}, "score.weight");
    else if (!m_.tied_head)
      add("lm_head.weight", {m_.vocab_size, m_.width}, "head.weight");
    if (m_.predicts_values) add_linear("v_head.summary", {1, m_.width}, true, "value");
    return std::move(tensors_);
  }

 private:
  void add(const std::string& name, std::vector<int64_t> shape, const std::string& param, int64_t first_row = 0) {
    const int64_t rows = shape[0];
    tensors_.push_back({name, std::move(shape), false, param, first_row, rows});
  }
  // A matrix [in, out] on disk.
  void add_conv1d(const std::string& name, int64_t out, int64_t in, const std::string& param) {
    tensors_.push_back({name + ".weight", {in, out}, true, param + ".weight", 0, out});
    add(name + ".bias", {out}, param + ".bias");
  }
  void add_norm(const std::string& name, const std::string& param) {
    add(name + ".weight", {m_.width}, param + ".weight");
    if (m_.norm == NormKind::layer_norm) add(name + ".bias", {m_.width}, param + ".bias");
  }

  void list_gpt2() {
    const int64_t d = m_.width;
    add("transformer.wte.weight", {m_.vocab_size, d}, "embed.tokens");
    add("transformer.wpe.weight", {m_.max_positions, d}, "embed.positions");
    for (int64_t i = 0; i < m_.num_layers; ++i) {
      const std::string h = fmt::format("transformer.h.{}.", i), block = fmt::format("blocks.{}.", i);
      add_norm(h + "ln_1", block + "attn_norm");
      add_conv1d(h + "attn.c_attn", 3 * d, d, block + "attn.qkv");
      add_conv1d(h + "attn.c_proj", d, d, block + "attn.out");
      add_norm(h + "ln_2", block + "mlp_norm");
      add_conv1d(h + "mlp.c_fc", m_.ffn_width, d, block + "mlp.up");
      add_conv1d(h + "mlp.c_proj", d, m_.ffn_width, block + "mlp.down");
    }
    add_norm("transformer.ln_f", "final_norm");
  }

  // Rows from `first_row` on of a matrix, and of its bias.
  void add_linear(const std::string& name, std::vector<int64_t> shape, bool bias, const std::string& param,
                  int64_t first_row = 0) {
    const int64_t out = shape[0];
    add(name + ".weight", std::move(shape), param + ".weight", first_row);
    if (bias) add(name + ".bias", {out}, param + ".bias", first_row);
  }

  // A weight has the matrices of all experts, one behind the other.
  void list_experts(const std::string& layer, const std::string& param) {
    if (m_.family == Family::gpt_oss) return list_stacked_experts(layer + "mlp.", param);
    const bool mixtral = m_.family == Family::mixtral;
    const std::string of = layer + (mixtral ? "block_sparse_moe." : "mlp.");
    const int64_t d = m_.width, f = m_.experts.width;
    add(of + "gate.weight", {m_.experts.count, d}, param + "router.weight");
    if (m_.experts.correction)
      add(of + "gate.e_score_correction_bias", {m_.experts.count}, param + "router.correction");
    for (int64_t e = 0; e < m_.experts.count; ++e) {
      const std::string expert = of + fmt::format("experts.{}.", e);
      add(expert + (mixtral ? "w1" : "gate_proj") + ".weight", {f, d}, param + "experts.up.weight", 2 * f * e);
      add(expert + (mixtral ? "w3" : "up_proj") + ".weight", {f, d}, param + "experts.up.weight", 2 * f * e + f);
      add(expert + (mixtral ? "w2" : "down_proj") + ".weight", {d, f}, param + "experts.down.weight", d * e);
    }
    if (m_.experts.shared_width == 0) return;
    list_mlp(of + (m_.latent ? "shared_experts." : "shared_expert."), m_.experts.shared_width, param + "shared.");
    if (m_.experts.shared_gate) add(of + "shared_expert_gate.weight", {1, d}, param + "shared_gate.weight");
  }

  // The matrices of all experts are one tensor, turned; their gates and ups take turns, as weft has them too.
  void list_stacked_experts(const std::string& of, const std::string& param) {
    const int64_t n = m_.experts.count, d = m_.width, f = m_.experts.width;
    add_linear(of + "router", {n, d}, true, param + "router");
    const auto add_stack = [&](const std::string& name, int64_t in, int64_t out, const std::string& weight) {
      for (int64_t e = 0; e < n; ++e)
        tensors_.push_back({name, {n, in, out}, true, weight + ".weight", out * e, out, e, n});
      tensors_.push_back({name + "_bias", {n, out}, false, weight + ".bias", 0, n * out});
    };
    add_stack(of + "experts.gate_up_proj", d, 2 * f, param + "experts.up");
    add_stack(of + "experts.down_proj", f, d, param + "experts.down");
  }

  void list_llama_like() {
    add("model.embed_tokens.weight", {m_.vocab_size, m_.width}, "embed.tokens");
    for (int64_t i = 0; i < m_.num_layers; ++i) list_block(i, m_.layer(i));
    add_norm("model.norm", "final_norm");
    if (m_.has_mtp()) list_mtp(fmt::format("model.layers.{}.", m_.num_layers));
  }

  void list_block(int64_t i, const LayerSpec& spec) {
    const std::string layer = fmt::format("model.layers.{}.", i), block = fmt::format("blocks.{}.", i);
    add_block_norm(layer, names_.attn_norm, block + "attn_norm");
    m_.latent ? list_latent_attention(layer + "self_attn.", block + "attn.", *m_.latent)
              : list_attention(layer + "self_attn.", block + "attn.");
    add_block_norm(layer, names_.attn_added, block + "attn_added_norm");
    add_block_norm(layer, names_.mlp_norm, block + "mlp_norm");
    spec.experts ? list_experts(layer, block + "mlp.") : list_mlp(layer + "mlp.", m_.ffn_width, block + "mlp.");
    add_block_norm(layer, names_.mlp_added, block + "mlp_added_norm");
  }

  void list_mtp(const std::string& layer) {
    add_norm(layer + "enorm", "mtp.token_norm");
    add_norm(layer + "hnorm", "mtp.state_norm");
    add(layer + "eh_proj.weight", {m_.width, 2 * m_.width}, "mtp.project.weight");
    list_block(m_.num_layers, m_.mtp_block);
    add_norm(layer + "shared_head.norm", "mtp.norm");
  }

  void add_block_norm(const std::string& layer, std::string_view name, const std::string& param) {
    if (!name.empty()) add_norm(layer + std::string(name), param);
  }

  void list_attention(const std::string& name, const std::string& param) {
    const int64_t d = m_.width, q = m_.q_width(), kv = m_.kv_width();
    if (names_.fused) {
      add_linear(name + "qkv_proj", {q + 2 * kv, d}, m_.qkv_bias, param + "qkv");
    } else {
      add_linear(name + "q_proj", {q, d}, m_.qkv_bias, param + "qkv");
      add_linear(name + "k_proj", {kv, d}, m_.qkv_bias, param + "qkv", q);
      add_linear(name + "v_proj", {kv, d}, m_.qkv_bias, param + "qkv", q + kv);
    }
    add_linear(name + "o_proj", {d, q}, m_.attention_out_bias, param + "out");
    if (m_.attention_sinks) add(name + "sinks", {m_.num_heads}, param + "sinks");
    if (m_.qk_norm == QkNorm::none) return;
    const bool all = m_.qk_norm == QkNorm::all;
    add(name + "q_norm.weight", {all ? q : m_.head_dim}, param + "q_norm.weight");
    add(name + "k_norm.weight", {all ? kv : m_.head_dim}, param + "k_norm.weight");
  }

  void list_mlp(const std::string& name, int64_t f, const std::string& param) {
    const int64_t d = m_.width;
    if (names_.fused) {
      add_linear(name + "gate_up_proj", {2 * f, d}, m_.mlp_bias, param + "up");
    } else {
      add_linear(name + "gate_proj", {f, d}, m_.mlp_bias, param + "up");
      add_linear(name + "up_proj", {f, d}, m_.mlp_bias, param + "up", f);
    }
    add_linear(name + "down_proj", {d, f}, m_.mlp_bias, param + "down");
  }

  void list_latent_attention(const std::string& name, const std::string& param, const LatentSpec& l) {
    const int64_t d = m_.width, q = m_.q_width(), kv = m_.num_heads * (l.nope_dim + l.v_dim);
    if (l.q_rank > 0) {
      add(name + "q_a_proj.weight", {l.q_rank, d}, param + "q_down.weight");
      add(name + "q_a_layernorm.weight", {l.q_rank}, param + "q_norm.weight");
      add(name + "q_b_proj.weight", {q, l.q_rank}, param + "q.weight");
    } else {
      add(name + "q_proj.weight", {q, d}, param + "q.weight");
    }
    add(name + "kv_a_proj_with_mqa.weight", {l.kv_rank + l.rope_dim, d}, param + "kv_down.weight");
    add(name + "kv_a_layernorm.weight", {l.kv_rank}, param + "kv_norm.weight");
    add(name + "kv_b_proj.weight", {kv, l.kv_rank}, param + "kv.weight");
    add(name + "o_proj.weight", {d, m_.result_width()}, param + "out.weight");
  }

  const ModelSpec& m_;
  BlockNames names_;
  std::vector<HfTensor> tensors_;
};

std::string_view prefix_of(Family family) { return family == Family::gpt2 ? "transformer." : "model."; }

std::string_view without_prefix(std::string_view name, std::string_view prefix) {
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

// Tables that older versions of transformers stored beside the weights and computes itself now.
bool is_buffer(std::string_view name, Family family) {
  if (family != Family::gpt2) return name.ends_with("rotary_emb.inv_freq");
  name = without_prefix(name, "transformer.");
  return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

bool is_of_layer(std::string_view name, int64_t layer) {
  return without_prefix(name, "model.").starts_with(fmt::format("layers.{}.", layer));
}

// A tensor of the modules behind the model's layers.
bool is_unread(std::string_view name, const ModelSpec& model) {
  for (int64_t i = 0; i < model.unread_layers; ++i)
    if (is_of_layer(name, model.num_layers + i)) return true;
  return false;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text;
  for (const int64_t size : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

// Lines of one message; only the first 50 of each kind are written out.
class Complaint {
 public:
  explicit Complaint(const char* title) : title_(title) {}
  void add(const std::string& line) {
    if (++count_ <= 50) lines_ += "\n  " + line;
  }
  std::string text() const {
    if (count_ == 0) return "";
    return fmt::format("\n{} ({}):{}{}", title_, count_, lines_, count_ > 50 ? "\n  ..." : "");
  }

 private:
  const char* title_;
  int64_t count_ = 0;
  std::string lines_;
};

class Matcher {
 public:
  Matcher(const ModelSpec& model, const SafetensorsFolder& folder) : model_(model), folder_(folder) {}

  HfMatch match_adapter() {
    for (HfTensor& tensor : adapter_tensors(model_)) find(std::move(tensor));
    match_.notes.clear();  // of a head that is not here: it is the base's, whose match tells where that has none either
    for (const SafetensorsFolder::Tensor& t : folder_.tensors()) {
      if (found_.count(t.entry) > 0 || is_copy_of_base(t)) continue;
      if (are_values_of_others(t))
        pass_over_values(t);
      else
        unexpected_.add(fmt::format("{} {}", in_quotes(t.name()), shape_text(t.entry->shape)));
    }
    const std::string wrong = missing_.text() + misshaped_.text() + unexpected_.text();
    if (wrong.empty()) return std::move(match_);
    throw FileError(
        fmt::format("{}: its tensors are not those of an adapter of this model, as its adapter_config.json "
                    "asks for it:{}\nis the adapter of another base model?",
                    folder_.path().string(), wrong));
  }

  HfMatch match() {
    gptq_ = gptq_format_in(folder_.path());
    for (HfTensor& tensor : hf_tensors(model_)) find(std::move(tensor));
    for (const SafetensorsFolder::Tensor& t : folder_.tensors())
      if (found_.count(t.entry) == 0) judge_leftover(t);
    const std::string wrong = missing_.text() + misshaped_.text() + unexpected_.text();
    if (unread_ > 0)
      match_.notes.push_back(fmt::format("{} tensors of modules that predict further tokens are passed over", unread_));
    if (wrong.empty()) return std::move(match_);
    throw FileError(fmt::format("{}: its tensors are not those that its config.json asks for:{}{}",
                                folder_.path().string(), wrong, hint()));
  }

 private:
  bool are_values_of_others(const SafetensorsFolder::Tensor& t) const {
    return t.name().starts_with("v_head.summary.") && !model_.predicts_values;
  }
  void pass_over_values(const SafetensorsFolder::Tensor& t) {
    match_.notes.push_back(t.name() + " is passed over: only train.objective = \"ppo\" has values");
  }

  // PEFT writes an embedding or a head that has an adapter once more beside that. It is frozen: the base's is read.
  bool is_copy_of_base(const SafetensorsFolder::Tensor& t) const {
    const auto& targets = model_.adapter->targets;
    return std::any_of(targets.begin(), targets.end(), [&](const AdapterSpec::Target& target) {
      const bool at_an_end = target.weight == Embedding::kTable || target.weight == VocabularyHead::kMatrix;
      return at_an_end && t.name() == "base_model.model." + target.module + ".base_layer.weight" &&
             t.entry->shape == std::vector{model_.vocab_size, model_.width};
    });
  }

  void find(HfTensor tensor) {
    if (tensor.slice > 0) return find_next_slice(std::move(tensor));
    const SafetensorsFolder::Tensor* source = folder_.find(tensor.name);
    if (source == nullptr) source = folder_.find(without_prefix(tensor.name, prefix_of(model_.family)));
    if (source == nullptr && gptq_ && find_codes(tensor)) return;
    if (source == nullptr && tensor.param == "value.bias" && !folder_.find("v_head.summary.weight"))
      return;  // said of the weight
    if (source == nullptr && tensor.param == "value.weight" && !folder_.find("v_head.summary.bias"))
      return match_.notes.push_back(
          fmt::format("v_head.summary is not there: its weight begins as random numbers of a deviation of {} "
                      "(initializer_range), from train.seed, its bias as 0",
                      model_.init_std));
    if (source == nullptr && tensor.name == "score.weight" && model_.begins_score)
      return match_.notes.push_back(
          fmt::format("{} is not there: it begins as random numbers of a deviation of {} (initializer_range), from "
                      "train.seed",
                      tensor.name, model_.init_std));
    if (source == nullptr) {
      head_is_missing_ = head_is_missing_ || tensor.param == "head.weight";
      return missing_.add(fmt::format("{} {}", tensor.name, shape_text(tensor.shape)));
    }
    found_.insert(source->entry);
    if (source->entry->shape != tensor.shape)
      misshaped_.add(
          fmt::format("{} {} instead of {}", tensor.name, shape_text(source->entry->shape), shape_text(tensor.shape)));
    else if (!is_convertible(source->entry->dtype))
      misshaped_.add(
          fmt::format("{} holds {}; weft reads F64, F32, BF16 and F16", tensor.name, name_of(source->entry->dtype)));
    match_.tensors.push_back({std::move(tensor), *source});
  }

  bool find_codes(const HfTensor& tensor) {
    if (tensor.shape.size() != 2 || tensor.slices > 1) return false;
    const std::string shorter(without_prefix(tensor.name, prefix_of(model_.family)));
    for (const std::string& name : {tensor.name, shorter}) {
      auto codes = GptqTensors::find(folder_, *gptq_, name, tensor.rows, tensor.cols());
      if (!codes) continue;
      for (const SafetensorsEntry* entry : codes->entries()) found_.insert(entry);
      const SafetensorsFolder::Tensor source = codes->codes();
      match_.tensors.push_back({tensor, source, std::move(codes)});
      return true;
    }
    return false;
  }

  // The tensor itself has been judged.
  void find_next_slice(HfTensor tensor) {
    if (!match_.tensors.empty() && match_.tensors.back().tensor.name == tensor.name)
      match_.tensors.push_back({std::move(tensor), match_.tensors.back().source});
  }

  void judge_leftover(const SafetensorsFolder::Tensor& t) {
    if (is_buffer(t.name(), model_.family)) return;
    if (is_unread(t.name(), model_)) return void(++unread_);
    if (are_values_of_others(t)) return pass_over_values(t);
    if (t.name() == "lm_head.weight" && model_.begins_score)
      return match_.notes.push_back(t.name() + " is passed over: a reward model has a score in its place");
    if (t.name() == "lm_head.weight" && model_.tied_head) return judge_copy(t, "embed.tokens", kTiedHead);
    if (model_.has_mtp() && is_of_layer(t.name(), model_.num_layers)) {
      if (t.name().ends_with(".embed_tokens.weight")) return judge_copy(t, "embed.tokens", kSharedTable);
      if (t.name().ends_with(".shared_head.head.weight"))
        return judge_copy(t, model_.tied_head ? "embed.tokens" : "head.weight", kSharedTable);
    }
    has_blocks_ = has_blocks_ || t.name().ends_with("_proj_blocks");
    has_codes_ = has_codes_ || t.name().ends_with(".qweight");
    unexpected_.add(fmt::format("{} {}", in_quotes(t.name()), shape_text(t.entry->shape)));
  }

  struct CopyWords {
    std::string_view equal, differs;
  };
  static constexpr CopyWords kTiedHead{"it equals the embedding, to which config.json ties it",
                                       "differs from the embedding to which config.json ties it (set "
                                       "tie_word_embeddings to false to keep it)"};
  static constexpr CopyWords kSharedTable{"it equals the model's own, which the module shares",
                                          "differs from the model's own, which the module shares"};

  // Other programs pass over a copy of a weight, whatever it holds: then training would start from another model.
  void judge_copy(const SafetensorsFolder::Tensor& copy, std::string_view param, const CopyWords& words) {
    const auto own = std::find_if(match_.tensors.begin(), match_.tensors.end(),
                                  [&](const FoundHfTensor& found) { return found.tensor.param == param; });
    if (own == match_.tensors.end()) return;  // missing: said already
    const SafetensorsFolder::Tensor& source = own->source;
    const auto a = folder_.bytes(copy), b = folder_.bytes(source);
    if (copy.entry->dtype == source.entry->dtype && copy.entry->shape == source.entry->shape &&
        std::equal(a.begin(), a.end(), b.begin(), b.end()))
      match_.notes.push_back(fmt::format("{} is passed over: {}", copy.name(), words.equal));
    else
      unexpected_.add(fmt::format("{}, which {}", copy.name(), words.differs));
  }

  std::string hint() const {
    if (has_codes_ && !gptq_)
      return "\nthese are weights in codes, but config.json has no quantization_config that says how they are kept";
    if (has_blocks_) return fmt::format("\nthese are weights in MXFP4, which weft does not read: {}", kMxfp4Advice);
    return head_is_missing_ ? "\nif the head is the embedding table, set tie_word_embeddings to true in config.json"
                            : "";
  }

  const ModelSpec& model_;
  const SafetensorsFolder& folder_;
  HfMatch match_;
  std::set<const SafetensorsEntry*> found_;
  bool head_is_missing_ = false, has_blocks_ = false, has_codes_ = false;
  std::optional<GptqFormat> gptq_;
  int64_t unread_ = 0;
  Complaint missing_{"missing"}, misshaped_{"of another shape or type"}, unexpected_{"unexpected"};
};

}  // namespace

int64_t HfTensor::cols() const {
  const int64_t elements = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return elements / slices / rows;
}

std::vector<HfTensor> hf_tensors(const ModelSpec& model) { return Lister(model).list(); }

std::vector<HfTensor> adapter_tensors(const ModelSpec& model) {
  std::vector<HfTensor> tensors;
  const AdapterSpec& adapter = *model.adapter;
  std::map<std::string, int64_t> columns;  // of each weight
  for (const HfTensor& t : hf_tensors(model)) columns[t.param] = t.cols();
  std::map<std::string, int64_t> of_experts;  // of each weight that has the matrices of experts: all its targets
  for (const AdapterSpec::Target& t : adapter.targets) of_experts[t.weight] += t.of_expert ? 1 : 0;
  std::map<std::string, Run> last;  // of each weight: how many targets there were, and rows of them
  for (const AdapterSpec::Target& t : adapter.targets) {
    Run& before = last[t.weight];
    const std::string product = t.weight.substr(0, t.weight.rfind('.')), name = "base_model.model." + t.module;
    const std::string a = ".lora_A.weight", b = ".lora_B.weight";
    const int64_t rank = adapter.rank;
    if (t.weight == Embedding::kTable) {  // PEFT turns its A, and has no ".weight" behind either
      tensors.push_back({name + ".lora_embedding_A", {rank, t.rows.count}, true, product + a, 0, t.rows.count});
      tensors.push_back(
          {name + ".lora_embedding_B", {columns.at(t.weight), rank}, false, product + b, 0, columns.at(t.weight)});
      continue;
    }
    if (t.of_expert) {  // a weight has the B of one matrix of each expert
      const int64_t each = of_experts.at(t.weight) / model.experts.count, at = before.first++;
      tensors.push_back(
          {name + a, {rank, columns.at(t.weight)}, false, GroupedAdapter::name_of_a(product), at * rank, rank});
      tensors.push_back({name + b,
                         {t.rows.count, rank},
                         false,
                         GroupedAdapter::name_of_b(product, at % each),
                         at / each * t.rows.count,
                         t.rows.count});
      continue;
    }
    tensors.push_back({name + a, {rank, columns.at(t.weight)}, false, product + a, before.first * rank, rank});
    tensors.push_back({name + b, {t.rows.count, rank}, false, product + b, before.count, t.rows.count});
    if (adapter.magnitudes)
      tensors.push_back({name + ".lora_magnitude_vector",
                         {t.rows.count},
                         false,
                         product + ".lora_magnitude_vector",
                         before.count,
                         t.rows.count});
    before = {before.first + 1, before.count + t.rows.count};
  }
  if (adapter.trains_score && model.head == HeadKind::score)
    tensors.push_back({"base_model.model.score.weight", {1, model.width}, false, "score.weight", 0, 1});
  if (adapter.trains_score && model.predicts_values) {  // as beside a whole model
    tensors.push_back({"v_head.summary.weight", {1, model.width}, false, "value.weight", 0, 1});
    tensors.push_back({"v_head.summary.bias", {1}, false, "value.bias", 0, 1});
  }
  return tensors;
}

std::vector<HfTensor> trained_tensors(const ModelSpec& model) {
  return model.adapter ? adapter_tensors(model) : hf_tensors(model);
}

std::vector<std::string> trained_only_in(const ModelSpec& model, const ModelSpec& other) {
  std::set<std::string> others;
  for (const HfTensor& t : trained_tensors(other)) others.insert(t.name);
  std::vector<std::string> names;
  for (const HfTensor& t : trained_tensors(model))
    if (t.slice == 0 && others.count(t.name) == 0) names.push_back(t.name);
  return names;
}

HfMatch match_adapter_tensors(const ModelSpec& model, const SafetensorsFolder& file) {
  return Matcher(model, file).match_adapter();
}

HfMatch match_hf_tensors(const ModelSpec& model, const SafetensorsFolder& folder) {
  return Matcher(model, folder).match();
}

void read_hf_rows(const FoundHfTensor& found, const SafetensorsFolder& folder, BlockStart start, const MatrixOut& to) {
  const HfTensor& t = found.tensor;
  if (found.codes) return found.codes->read(folder, start, to);
  FileMatrix matrix = folder.matrix(found.source);
  const size_t bytes = matrix.bytes.size() / size_t(t.slices);
  matrix = {matrix.bytes.subspan(size_t(t.slice) * bytes, bytes), matrix.dtype, t.transposed ? t.cols() : t.rows,
            t.transposed ? t.rows : t.cols()};
  if (t.transposed)
    read_transposed(matrix, {start.col, start.row}, to);
  else
    read_matrix(matrix, start, to);
}

}  // namespace weft
