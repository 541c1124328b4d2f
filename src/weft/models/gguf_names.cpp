#include "weft/models/gguf_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "weft/base/error.h"

namespace weft {
namespace {

struct Architecture {
  Family family;
  std::string_view name;
};
constexpr Architecture kArchitectures[] = {
    {Family::llama, "llama"},   {Family::mistral, "llama"},      {Family::qwen2, "qwen2"},
    {Family::qwen3, "qwen3"},   {Family::gpt2, "gpt2"},          {Family::gemma2, "gemma2"},
    {Family::gemma3, "gemma3"}, {Family::phi3, "phi3"},          {Family::olmo2, "olmo2"},
    {Family::mixtral, "llama"}, {Family::qwen2_moe, "qwen2moe"}, {Family::qwen3_moe, "qwen3moe"}};

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
                                {"mlp.gate_proj", "ffn_gate"},
                                {"mlp.up_proj", "ffn_up"},
                                {"mlp.gate_up_proj", "ffn_up"},
                                {"mlp.c_fc", "ffn_up"},
                                {"mlp.down_proj", "ffn_down"},
                                {"mlp.c_proj", "ffn_down"},
                                {"block_sparse_moe.gate", "ffn_gate_inp"},
                                {"mlp.gate", "ffn_gate_inp"},
                                {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};
// Modules of an expert, behind "experts.E.": those of all experts of a block are one tensor.
constexpr Pair kExpertNames[] = {{"gate_proj", "ffn_gate_exps"}, {"w1", "ffn_gate_exps"},
                                 {"up_proj", "ffn_up_exps"},     {"w3", "ffn_up_exps"},
                                 {"down_proj", "ffn_down_exps"}, {"w2", "ffn_down_exps"}};

bool has_norms_behind(Family family) {
  return family == Family::gemma2 || family == Family::gemma3 || family == Family::olmo2;
}

template <class Table>
std::string_view found_in(const Table& table, std::string_view module) {
  const auto at = std::find_if(std::begin(table), std::end(table), [&](const Pair& p) { return p.first == module; });
  WEFT_CHECK(at != std::end(table), "{} has no name in GGUF", module);
  return at->second;
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

}  // namespace

std::string_view gguf_architecture(Family family) {
  for (const Architecture& a : kArchitectures)
    if (a.family == family) return a.name;
  return "";
}

std::string gguf_families() {
  return "llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, gpt2, gemma2, gemma3, phi3 and olmo2";
}

std::vector<GgufName> gguf_names(const ModelSpec& model) {
  std::vector<GgufName> names;
  for (const HfTensor& t : hf_tensors(model)) {
    GgufName n{.shape = t.shape};
    n.name = translated(t.name, model.family, n.expert);
    if (t.transposed) std::reverse(n.shape.begin(), n.shape.end());
    if (n.expert >= 0) n.shape.insert(n.shape.begin(), model.experts.count);
    n.turned_heads = turned_heads(model, n.name);
    n.as_f32 = n.shape.size() == 1 || n.name == "position_embd.weight" || n.name.find(".ffn_gate_inp") != n.name.npos;
    if (n.name.ends_with("norm.weight")) n.offset = model.norm_offset;
    names.push_back(std::move(n));
  }
  return names;
}

bool gguf_repeats_table(const ModelSpec& model) { return model.tied_head && model.family == Family::olmo2; }

int64_t gguf_row(const GgufName& name, int64_t row) {
  if (name.expert >= 0) return name.expert * name.shape[1] + row;
  if (name.turned_heads == 0) return row;
  const int64_t size = name.shape[0] / name.turned_heads, half = size / 2, head = row / size, in = row % size;
  return head * size + 2 * (in % half) + in / half;
}

int64_t folder_row(const GgufName& name, int64_t row) {
  if (name.turned_heads == 0) return row;
  const int64_t size = name.shape[0] / name.turned_heads, half = size / 2, head = row / size, in = row % size;
  return head * size + in % 2 * half + in / 2;
}

}  // namespace weft
