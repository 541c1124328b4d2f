#include "weft/models/gguf_names.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "weft/base/error.h"

namespace weft {
namespace {

struct Architecture {
  Family family;
  std::string_view name;
};
constexpr Architecture kArchitectures[] = {{Family::llama, "llama"},
                                           {Family::mistral, "llama"},
                                           {Family::qwen2, "qwen2"},
                                           {Family::qwen3, "qwen3"},
                                           {Family::gpt2, "gpt2"},
                                           {Family::gemma2, "gemma2"},
                                           {Family::gemma3, "gemma3"},
                                           {Family::phi3, "phi3"},
                                           {Family::olmo2, "olmo2"},
                                           {Family::mixtral, "llama"},
                                           {Family::qwen2_moe, "qwen2moe"},
                                           {Family::qwen3_moe, "qwen3moe"},
                                           {Family::gpt_oss, "gpt-oss"},
                                           {Family::deepseek_v2, "deepseek2"},
                                           {Family::deepseek_v3, "deepseek2"}};

using Pair = std::pair<std::string_view, std::string_view>;

// Modules outside blocks.
constexpr Pair kModelNames[] = {{"model.embed_tokens", "token_embd"}, {"transformer.wte", "token_embd"},
                                {"transformer.wpe", "position_embd"}, {"model.norm", "output_norm"},
                                {"transformer.ln_f", "output_norm"},  {"lm_head", "output"}};
// Modules of a block, behind "model.layers.N." or "transformer.h.N."
constexpr Pair kBlockNames[] = {{"input_layernorm", "attn_norm"},
                                {"ln_1", "attn_norm"},
                                {"self_attn.q_proj", "attn_q"},
                                {"self_attn.k_proj", "attn_k"},
                                {"self_attn.v_proj", "attn_v"},
                                {"self_attn.qkv_proj", "attn_qkv"},
                                {"attn.c_attn", "attn_qkv"},
                                {"self_attn.o_proj", "attn_output"},
                                {"attn.c_proj", "attn_output"},
                                {"self_attn.q_norm", "attn_q_norm"},
                                {"self_attn.k_norm", "attn_k_norm"},
                                {"pre_feedforward_layernorm", "ffn_norm"},
                                {"ln_2", "ffn_norm"},
                                {"post_feedforward_layernorm", "post_ffw_norm"},
                                {"self_attn.q_a_proj", "attn_q_a"},
                                {"self_attn.q_a_layernorm", "attn_q_a_norm"},
                                {"self_attn.q_b_proj", "attn_q_b"},
                                {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                                {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
                                {"self_attn.kv_b_proj", "attn_kv_b"},
                                {"mlp.gate_proj", "ffn_gate"},
                                {"mlp.up_proj", "ffn_up"},
                                {"mlp.gate_up_proj", "ffn_up"},
                                {"mlp.c_fc", "ffn_up"},
                                {"mlp.down_proj", "ffn_down"},
                                {"mlp.c_proj", "ffn_down"},
                                {"block_sparse_moe.gate", "ffn_gate_inp"},
                                {"mlp.gate", "ffn_gate_inp"},
                                {"mlp.router", "ffn_gate_inp"},
                                {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
                                {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
                                {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};
// Tensors of a block whose names do not end with ".weight" or ".bias".
constexpr Pair kBareNames[] = {{"self_attn.sinks", "attn_sinks.weight"},
                               {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
                               {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight"},
                               {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias"},
                               {"mlp.experts.down_proj", "ffn_down_exps.weight"},
                               {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"}};
// Modules of an expert, behind "experts.E.": those of all experts of a block are one tensor.
constexpr Pair kExpertNames[] = {{"gate_proj", "ffn_gate_exps"}, {"w1", "ffn_gate_exps"},
                                 {"up_proj", "ffn_up_exps"},     {"w3", "ffn_up_exps"},
                                 {"down_proj", "ffn_down_exps"}, {"w2", "ffn_down_exps"}};

bool has_norms_behind(Family family) {
  return family == Family::gemma2 || family == Family::gemma3 || family == Family::olmo2 || family == Family::gpt_oss;
}

template <class Table>
std::string_view found_or_empty(const Table& table, std::string_view module) {
  const auto at = std::find_if(std::begin(table), std::end(table), [&](const Pair& p) { return p.first == module; });
  return at == std::end(table) ? std::string_view() : at->second;
}

template <class Table>
std::string_view found_in(const Table& table, std::string_view module) {
  const std::string_view found = found_or_empty(table, module);
  WEFT_CHECK(!found.empty(), "{} has no name in GGUF", module);
  return found;
}

// What stands before `word` is taken away with it, up to the dot behind; the number that stood there. -1: no such word.
int64_t take_number_behind(std::string_view word, std::string_view& module) {
  const size_t at = module.find(word);
  if (at == module.npos) return -1;
  module.remove_prefix(at + word.size());
  const std::string number(module.substr(0, module.find('.')));
  module.remove_prefix(number.size() + 1);
  return std::stoll(number);
}

// "model.layers.3.mlp.up_proj.weight": "blk.3.ffn_up.weight"
std::string translated(std::string_view name, Family family, int64_t& expert) {
  const size_t dot = name.rfind('.');
  std::string_view module = name.substr(0, dot), kind = name.substr(dot);
  for (const std::string_view prefix : {"model.layers.", "transformer.h."}) {
    if (!module.starts_with(prefix)) continue;
    module.remove_prefix(prefix.size());
    const std::string_view number = module.substr(0, module.find('.'));
    module.remove_prefix(number.size() + 1);
    const std::string_view bare = found_or_empty(kBareNames, name.substr(size_t(module.data() - name.data())));
    if (!bare.empty()) return fmt::format("blk.{}.{}", number, bare);
    if (expert = take_number_behind(".experts.", module); expert >= 0)
      return fmt::format("blk.{}.{}{}", number, found_in(kExpertNames, module), kind);
    const bool behind = has_norms_behind(family);
    const std::string_view there = module == "post_attention_layernorm" ? (behind ? "post_attention_norm" : "ffn_norm")
                                                                        : found_in(kBlockNames, module);
    return fmt::format("blk.{}.{}{}", number, there, kind);
  }
  return fmt::format("{}{}", found_in(kModelNames, module), kind);
}

int64_t turned_heads(const ModelSpec& m, std::string_view name) {
  if (gguf_architecture(m.family) != "llama") return 0;
  return name.find(".attn_q.") != name.npos ? m.num_heads : name.find(".attn_k.") != name.npos ? m.num_kv_heads : 0;
}

// "blk.0.ffn_gate_exps.bias": "blk.0.ffn_up_exps.bias"
std::string renamed(std::string name, std::string_view from, std::string_view to) {
  return name.replace(name.find(from), from.size(), to);
}

GgufName share_of(const GgufName& whole, std::string name, std::vector<int64_t> shape, int64_t period, int64_t begin,
                  int64_t width) {
  GgufName part = whole;
  part.name = std::move(name), part.shape = std::move(shape);
  part.period = period, part.begin = begin, part.width = width;
  return part;
}

// Gates and ups, which take turns here, are a tensor each there.
std::array<GgufName, 2> gates_and_ups(const GgufName& both) {
  std::vector<int64_t> shape = both.shape;
  shape[both.vector ? shape.size() - 1 : shape.size() - 2] /= 2;
  return {share_of(both, both.name, shape, 2, 0, 1),
          share_of(both, renamed(both.name, "ffn_gate_exps", "ffn_up_exps"), shape, 2, 1, 1)};
}

// Keys and values of a head follow each other here.
std::array<GgufName, 2> keys_and_values(const ModelSpec& m, const GgufName& both) {
  const LatentSpec& l = *m.latent;
  const int64_t period = l.nope_dim + l.v_dim;
  std::array parts = {share_of(both, renamed(both.name, "attn_kv_b", "attn_k_b"), {m.num_heads, l.kv_rank, l.nope_dim},
                               period, 0, l.nope_dim),
                      share_of(both, renamed(both.name, "attn_kv_b", "attn_v_b"), {m.num_heads, l.v_dim, l.kv_rank},
                               period, l.nope_dim, l.v_dim)};
  parts[0].across = true;
  return parts;
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return name.ends_with(e); });
}

}  // namespace

std::string_view gguf_architecture(Family family) {
  for (const Architecture& a : kArchitectures)
    if (a.family == family) return a.name;
  return "";
}

std::string gguf_families() {
  return "llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, gpt2, gemma2, gemma3, phi3, olmo2, gpt_oss, "
         "deepseek_v2 and deepseek_v3";
}

int64_t GgufName::rows() const {
  if (expert >= 0) return shape[1];
  return std::accumulate(shape.begin(), shape.end() - 1, int64_t{1}, std::multiplies<>());
}

std::vector<GgufName> gguf_names(const ModelSpec& model, GgufLatents latents) {
  std::vector<GgufName> names;
  const std::vector<HfTensor> tensors = hf_tensors(model);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const HfTensor& t = tensors[i];
    GgufName n{.shape = t.shape, .source = i};
    n.name = translated(t.name, model.family, n.expert);
    if (t.shape.size() == 3) n.expert = t.slice, n.shape.erase(n.shape.begin());
    if (t.transposed) std::reverse(n.shape.begin(), n.shape.end());
    if (n.expert >= 0) n.shape.insert(n.shape.begin(), model.experts.count);
    n.vector = t.shape.size() == 1 || (t.shape.size() == 2 && t.cols() == 1);
    n.turned_heads = turned_heads(model, n.name);
    n.as_f32 = n.vector || n.name == "position_embd.weight" || n.name.find(".ffn_gate_inp") != n.name.npos;
    if (n.name.ends_with("norm.weight")) n.offset = model.norm_offset;
    if (ends_with_any(t.name, {"experts.gate_up_proj", "experts.gate_up_proj_bias"}))
      for (GgufName& part : gates_and_ups(n)) names.push_back(std::move(part));
    else if (t.name.ends_with("kv_b_proj.weight") && latents == GgufLatents::apart)
      for (GgufName& part : keys_and_values(model, n)) names.push_back(std::move(part));
    else
      names.push_back(std::move(n));
  }
  return names;
}

bool gguf_repeats_table(const ModelSpec& model) {
  return model.tied_head && (model.family == Family::olmo2 || model.family == Family::gpt_oss || model.latent);
}

int64_t gguf_row(const GgufName& name, int64_t row) {
  if (name.period > 0) row = row / name.period * name.width + row % name.period - name.begin;
  if (name.expert >= 0) return name.expert * name.shape[1] + row;
  if (name.turned_heads == 0) return row;
  const int64_t size = name.shape[0] / name.turned_heads, half = size / 2, head = row / size, in = row % size;
  return head * size + 2 * (in % half) + in / half;
}

int64_t folder_row(const GgufName& name, int64_t row) {
  if (name.period > 0) return row / name.width * name.period + name.begin + row % name.width;
  if (name.turned_heads == 0) return row;
  const int64_t size = name.shape[0] / name.turned_heads, half = size / 2, head = row / size, in = row % size;
  return head * size + in % 2 * half + in / 2;
}

}  // namespace weft
