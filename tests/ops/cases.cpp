// The list is compiled once: it makes an operand and a twin for every op.
#include "ops/cases.h"

#include "ops/cases_attention.h"
#include "ops/cases_experts.h"
#include "ops/cases_matrix.h"
#include "ops/cases_norm.h"
#include "ops/cases_pointwise.h"
#include "ops/cases_update.h"

namespace weft::testing {

OpCases op_cases(DType compute) {
  OpCases all;
  for (int64_t gap : {0, 3}) {
    const Variant v{compute, gap};
    add_products(all, v);
    add_bias_grads(all, v);
    add_tables(all, v);
    add_norms(all, v);
    add_head_norms(all, v);
    add_cut_norms(all, v);
    add_attentions(all, v);
    add_attention_merges(all, v);
    add_attention_sinks(all, v);
    add_ropes(all, v);
    add_latent_keys(all, v);
    add_activations(all, v);
    add_soft_caps(all, v);
    add_dropouts(all, v);
    add_cross_entropies(all, v);
    add_cut_cross_entropies(all, v);
    add_distillations(all, v);
    add_top_distillations(all, v);
    add_sums_and_copies(all, v);
    add_expert_rows(all, v);
    add_grouped_products(all, v);
    if (gap > 0) continue;
    add_reductions(all, v);
    add_updates(all, v);
    add_codes(all, v);
    add_dequantise(all, v);
    add_routers(all, v);
  }
  return all;
}

OpCases timed_cases(DType compute) {
  const int64_t t = 2048, d = 512, f = 1376, qkv = 1024, classes = 32000, chunk = 512;
  const Variant v{compute};
  OpCases all;
  const auto product = [&](const char* name, const ProductCase& c) {
    add_case(all, v, std::string(name) + " " + name_of_case(c), [c](Operands& o) { return make_product(o, c); });
  };
  product("qkv", {.m = t, .n = qkv, .k = d, .trans_b = true});
  product("qkv dgrad", {.m = t, .n = d, .k = qkv});
  product("qkv wgrad", {.m = qkv, .n = d, .k = t, .trans_a = true, .accumulate = true});
  product("up", {.m = t, .n = 2 * f, .k = d, .trans_b = true});
  product("head", {.m = chunk, .n = classes, .k = d, .trans_b = true, .stat_out = true});
  const NormCase norm{.t = t, .d = d, .delta = true, .carry = true, .accumulate = true};
  add_case(all, v, "of the stream", [norm](Operands& o) { return make_norm(o, norm); });
  add_case(all, v, "of the stream", [norm](Operands& o) { return make_norm_apply(o, norm); });
  add_case(all, v, "of the stream", [norm](Operands& o) { return make_norm_backward(o, norm); });
  const HeadNormCase heads{.t = t, .h = 8, .e = 64, .accumulate = true, .in_place = true};
  add_case(all, v, "of queries", [heads](Operands& o) { return make_head_norm(o, heads); });
  add_case(all, v, "of queries", [heads](Operands& o) { return make_head_norm_backward(o, heads); });
  const AttentionCase attention{"4 sequences", packed({512, 512, 512, 512}), heads_of(8, 4, 64)};
  add_case(all, v, attention.name, [attention](Operands& o) { return make_attention(o, attention); });
  add_case(all, v, attention.name, [attention](Operands& o) { return make_attention_backward(o, attention); });
  add_case(all, v, "of the MLP", [=](Operands& o) { return GatedUnit{.u = o.act(t, 2 * f), .a = o.act_out(t, f)}; });
  add_case(all, v, "of the MLP", [=](Operands& o) {
    return GatedUnitBackward{.u = o.act(t, 2 * f), .da = o.act(t, f), .du = o.act_out(t, 2 * f)};
  });
  add_case(all, v, "of the MLP", [=](Operands& o) { return Gelu{.x = o.act(t, f), .y = o.act_out(t, f)}; });
  add_case(all, v, "of the MLP",
           [=](Operands& o) { return GeluBackward{.x = o.act(t, f), .dy = o.act(t, f), .dx = o.act_out(t, f)}; });
  const LossCase loss{chunk, classes, "a chunk"};
  add_case(all, v, loss.name, [loss](Operands& o) { return make_cross_entropy(o, loss); });
  add_case(all, v, "of the MLP", [=](Operands& o) {
    return BiasGrad{.dy = o.act(t, 2 * f), .db = o.gradient({2 * f}, true), .accumulate = true};
  });
  add_case(all, v, "of the stream",
           [=](Operands& o) { return Add{.x = o.act(t, d), .y = o.act(t, d), .out = o.act_out(t, d)}; });
  const UpdateCase update{classes * 256, 100, 0.1, 1, 0.9};
  add_case(all, v, "half a table", [update](Operands& o) { return make_adamw(o, update); });
  return all;
}

}  // namespace weft::testing
