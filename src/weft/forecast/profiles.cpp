#include "weft/forecast/profile.h"

namespace weft {
namespace {

// Fitted by `weft plan score published.csv --fit` from the numbers before; docs/planning.md says how well they do.
constexpr const char* kProfiles = R"(
[[program]]
name = "any program"
products = 0.7817
products8 = 0.8755
products4 = 1.353
attention = 0.2585
attention_backward = 0.4009
memory = 0.7528
newer = 1.077
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1679
cp_exposed = 0.09948
pp_exposed = 1.3
gather_hidden = 0.139
reduce_hidden = 1.076
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 61.88
action_ms = 0.018
gain = 0.1737
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "any program with experts"
experts = true
products = 0.3435
products8 = 0.8755
products4 = 1.353
grouped = 1.3
attention = 0.2585
attention_backward = 0.4009
memory = 1.555
newer = 0.8262
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1679
ep_exposed = 0.4125
ep_inside = 0.6736
cp_exposed = 0.09948
pp_exposed = 0.766
gather_hidden = 0.139
reduce_hidden = 1.076
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 92.5
action_ms = 0.018
gain = 0.1002
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "weft"  # from the ops of a step on an H100 (docs/benchmarks), one by one
frameworks = ["weft"]
products = 1
attention = 0.42
attention_backward = 0.19
memory = 0.52
update = 0.75

[[program]]
name = "weft with experts"
frameworks = ["weft"]
experts = true
products = 1
grouped = 0.31
attention = 0.42
attention_backward = 0.19
memory = 0.52
update = 0.75

[[program]]
name = "Megatron-Core"
frameworks = ["megatron-core", "nemo", "megatron-bridge"]
products = 0.936
products8 = 0.8394
products4 = 1.237
attention = 0.3765
attention_backward = 0.5212
memory = 1.196
newer = 0.8909
newer_attention = 0.8528
casts = 0.3081
tp_exposed = 0.2175
cp_exposed = 0.08851
pp_exposed = 1.23
gather_hidden = 0.1598
reduce_hidden = 1.076
slowdown = 0.2861
network = 1.225
hop_us = 3.013
launch_us = 61.88
action_ms = 0.08136
gain = 0.09171
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-Core with experts"
frameworks = ["megatron-core", "nemo", "megatron-bridge"]
experts = true
products = 0.4042
products8 = 0.8394
products4 = 1.237
grouped = 1.3
attention = 0.3765
attention_backward = 0.5212
memory = 1.472
newer = 0.7705
newer_attention = 0.8528
casts = 0.3081
tp_exposed = 0.2175
ep_exposed = 0.4241
ep_inside = 0.8434
cp_exposed = 0.08851
pp_exposed = 1.021
gather_hidden = 0.1598
reduce_hidden = 1.076
slowdown = 0.2861
network = 1.225
hop_us = 3.013
launch_us = 91.88
action_ms = 0.08136
gain = 0.1123
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-DeepSpeed"
frameworks = ["megatron-deepspeed"]
products = 0.7817
products8 = 0.8755
products4 = 1.353
attention = 0.1674
attention_backward = 0.2855
memory = 0.4673
newer = 1.077
newer_attention = 0.8144
scores = 1
casts = 0.21
tp_exposed = 0.2232
cp_exposed = 0.09948
pp_exposed = 0.5362
gather_hidden = 0.139
reduce_hidden = 1.076
slowdown = 0.2861
network = 0.8822
hop_us = 2.554
launch_us = 356.3
gap_us = 31.7
action_ms = 0.018
gain = 0.169
memory_kept = 1.32
memory_part = 0.8706
memory_base = 3.221e+09

[[program]]
name = "Megatron-LM of 2021"
frameworks = ["megatron-lm", "alpa"]
products = 0.9171
products8 = 0.8755
products4 = 1.353
attention = 0.2844
attention_backward = 0.4023
memory = 0.7491
update = 1.3
newer = 1.077
newer_attention = 0.8144
scores = 1
casts = 0.21
tp_exposed = 0.06925
cp_exposed = 0.09948
pp_exposed = 1.3
gather_hidden = 0.287
reduce_hidden = 1.076
slowdown = 0.118
network = 1.3
hop_us = 0.6789
launch_us = 49.5
gap_us = 7.847
action_ms = 4.893
gain = 0.1997
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "PyTorch FSDP"
frameworks = ["fsdp", "foundry"]
products = 0.899
products8 = 0.7701
products4 = 1.353
attention = 0.3295
attention_backward = 0.3007
memory = 0.7974
newer = 0.9314
newer_attention = 0.6139
casts = 0.21
tp_exposed = 0.1679
cp_exposed = 0.09948
pp_exposed = 1.3
gather_hidden = 0.2009
reduce_hidden = 1.076
slowdown = 0.2939
network = 1.3
hop_us = 32.63
launch_us = 61.88
gap_us = 45.16
action_ms = 0.018
gain = 0.1737
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "torchtitan"
frameworks = ["torchtitan"]
products = 0.9027
products8 = 0.6492
products4 = 1.353
attention = 0.2875
attention_backward = 0.4289
memory = 0.4135
update = 0.3096
newer = 0.7228
newer_attention = 0.5852
casts = 0.4338
tp_exposed = 0.3468
cp_exposed = 0.09948
pp_exposed = 1.3
gather_hidden = 0.06564
reduce_hidden = 1.076
slowdown = 0.2373
network = 0.8004
hop_us = 2.554
launch_us = 61.88
gap_us = 80.31
action_ms = 0.018
gain = 0.07164
memory_base = 4.295e+09

[[program]]
name = "InternEvo"
frameworks = ["internevo"]
products = 0.7817
products8 = 0.8755
products4 = 1.353
attention = 0.5339
attention_backward = 0.3894
memory = 0.7203
update = 0.7004
newer = 1.077
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.3468
cp_exposed = 0.09948
pp_exposed = 1.3
gather_hidden = 0.09126
reduce_hidden = 1.3
slowdown = 0.1796
network = 1.102
hop_us = 207.7
launch_us = 61.88
action_ms = 0.018
gain = 0.1756
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "nanotron"
frameworks = ["nanotron"]
products = 0.7817
products8 = 0.8755
products4 = 1.353
attention = 0.2585
attention_backward = 0.4009
memory = 0.7528
newer = 1.077
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1679
cp_exposed = 0.09948
pp_exposed = 1.3
gather_hidden = 0.139
reduce_hidden = 1.076
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 61.88
action_ms = 0.018
gain = 0.1737
memory_kept = 1.149
memory_part = 1.516

[[program]]
name = "LLMQ"
frameworks = ["llm.q", "llmq", "llm.c"]
products = 0.9815
products8 = 0.8755
products4 = 1.353
attention = 0.4554
attention_backward = 0.4133
memory = 0.9764
newer = 0.9228
newer_attention = 0.3979
casts = 0.2893
tp_exposed = 0.1679
cp_exposed = 0.09948
pp_exposed = 1.3
gather_hidden = 0.287
reduce_hidden = 1.076
slowdown = 0.2144
network = 1.102
hop_us = 2.554
launch_us = 61.88
action_ms = 0.018
gain = 0.2599
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Hugging Face Trainer"
frameworks = ["hf trainer", "transformers"]
products = 0.6274
products8 = 0.8755
products4 = 1.353
attention = 0.5339
attention_backward = 0.8281
memory = 0.3105
update = 0.2887
newer = 1.077
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1679
cp_exposed = 0.09948
pp_exposed = 1.3
gather_hidden = 0.05732
reduce_hidden = 1.076
slowdown = 0.2871
network = 0.4545
hop_us = 2000
launch_us = 57.16
gap_us = 4.122
action_ms = 0.018
gain = 0.1737
memory_part = 2.639
memory_base = 2.147e+09

[[program]]
name = "torchtune"
frameworks = ["torchtune"]
products = 1.016
products8 = 0.8755
products4 = 1.353
attention = 0.4645
attention_backward = 0.3861
memory = 0.8028
update = 0.9197
newer = 1.077
newer_attention = 0.8144
casts = 0.21
tp_exposed = 0.1679
cp_exposed = 0.09948
pp_exposed = 1.3
gather_hidden = 0.139
reduce_hidden = 1.076
slowdown = 0.2861
network = 1.102
hop_us = 2.554
launch_us = 61.88
gap_us = 41.36
action_ms = 0.018
gain = 0.1737
memory_kept = 0.3789

)";

}  // namespace

const Profiles& Profiles::built_in() {
  static const Profiles all = parse(kProfiles, "the built-in profiles");
  return all;
}

}  // namespace weft
