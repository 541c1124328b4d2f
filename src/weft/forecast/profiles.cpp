#include "weft/forecast/profile.h"

namespace weft {
namespace {

// Fitted by `weft plan score published.csv --fit`; docs/planning.md says how well they do.
constexpr const char* kProfiles = R"(
[[program]]
name = "any program"
products = 0.7351
products8 = 0.9221
products4 = 1.608
attention = 0.3056
attention_backward = 0.3494
memory = 0.7999
newer = 1.077
newer_attention = 0.7794
casts = 0.2211
tp_exposed = 0.4125
cp_exposed = 0.1781
pp_exposed = 0.6604
gather_hidden = 0.6725
reduce_hidden = 0.9981
slowdown = 0.1508
network = 1.022
hop_us = 5.258
launch_us = 71.61
gain = 0.07359
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "any program with experts"
experts = true
products = 0.3087
products8 = 0.9221
products4 = 1.608
grouped = 1.3
attention = 0.3056
attention_backward = 0.3494
memory = 1.652
newer = 0.8671
newer_attention = 0.7794
casts = 0.2211
tp_exposed = 0.4125
ep_exposed = 0.4125
ep_inside = 0.6623
cp_exposed = 0.1781
pp_exposed = 0.6544
gather_hidden = 0.6725
reduce_hidden = 0.9981
slowdown = 0.1508
network = 1.022
hop_us = 5.258
launch_us = 85.03
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
products = 0.86
products8 = 0.906
products4 = 1.552
attention = 0.5536
attention_backward = 0.4019
memory = 1.376
newer = 1.03
newer_attention = 0.7222
casts = 0.1885
tp_exposed = 0.4193
cp_exposed = 0.07346
pp_exposed = 0.8055
gather_hidden = 0.6725
reduce_hidden = 0.9981
slowdown = 0.2396
network = 1.273
hop_us = 5.25
launch_us = 71.61
action_ms = 0.3905
gain = 0.06615
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-Core with experts"
frameworks = ["megatron-core", "nemo", "megatron-bridge"]
experts = true
products = 0.3714
products8 = 0.906
products4 = 1.552
grouped = 1.3
attention = 0.5536
attention_backward = 0.4019
memory = 2.186
newer = 0.8039
newer_attention = 0.7222
casts = 0.1885
tp_exposed = 0.4193
ep_exposed = 0.4515
ep_inside = 0.7552
cp_exposed = 0.07346
pp_exposed = 0.7046
gather_hidden = 0.6725
reduce_hidden = 0.9981
slowdown = 0.2396
network = 1.273
hop_us = 5.25
launch_us = 85.03
action_ms = 0.3905
gain = 0.0825
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-DeepSpeed"
frameworks = ["megatron-deepspeed"]
products = 0.7351
products8 = 0.9221
products4 = 1.608
attention = 0.1613
attention_backward = 0.2555
memory = 0.5259
newer = 1.077
newer_attention = 0.7794
scores = 1
casts = 0.2211
tp_exposed = 0.6096
cp_exposed = 0.1781
pp_exposed = 0.5059
gather_hidden = 0.6725
reduce_hidden = 0.9981
slowdown = 0.1508
network = 0.947
hop_us = 5.258
launch_us = 373.1
gain = 0.09189
memory_kept = 1.32
memory_part = 0.8706
memory_base = 3.221e+09

[[program]]
name = "Megatron-LM of 2021"
frameworks = ["megatron-lm", "alpa"]
products = 0.7787
products8 = 0.9221
products4 = 1.608
attention = 0.1852
attention_backward = 0.1984
memory = 0.7084
update = 0.765
newer = 1.077
newer_attention = 0.7794
scores = 1
casts = 0.2211
tp_exposed = 0.1701
cp_exposed = 0.1781
pp_exposed = 0.6441
gather_hidden = 1.3
reduce_hidden = 0.9981
slowdown = 0.1951
network = 1.3
hop_us = 3.589
launch_us = 71.61
gain = 0.1162
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "PyTorch FSDP"
frameworks = ["fsdp", "foundry"]
products = 0.8546
products8 = 0.6857
products4 = 1.608
attention = 0.288
attention_backward = 0.313
memory = 0.4717
newer = 0.8996
newer_attention = 0.6313
casts = 0.2211
tp_exposed = 0.4125
cp_exposed = 0.1781
pp_exposed = 0.6604
gather_hidden = 0.6738
reduce_hidden = 1.164
slowdown = 0.1635
network = 1.028
hop_us = 93.14
launch_us = 71.61
gain = 0.07265
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "torchtitan"
frameworks = ["torchtitan"]
products = 0.8176
products8 = 0.6401
products4 = 1.608
attention = 0.3118
attention_backward = 0.3429
memory = 0.5845
update = 0.2887
newer = 0.7863
newer_attention = 0.6625
casts = 0.3827
tp_exposed = 0.6904
cp_exposed = 0.1781
pp_exposed = 0.6604
gather_hidden = 0.6725
reduce_hidden = 0.9981
slowdown = 0.2957
network = 1.188
hop_us = 5.258
launch_us = 71.61
action_ms = 97.82
gain = 0.05388
memory_base = 4.295e+09

[[program]]
name = "InternEvo"
frameworks = ["internevo"]
products = 0.7548
products8 = 0.9221
products4 = 1.608
attention = 0.5672
attention_backward = 0.3572
memory = 0.833
newer = 1.077
newer_attention = 0.7794
casts = 0.2211
tp_exposed = 0.852
cp_exposed = 0.1781
pp_exposed = 0.6604
gather_hidden = 0.2774
reduce_hidden = 1.273
slowdown = 0.1426
network = 1.022
hop_us = 133.7
launch_us = 71.61
gain = 0.07308
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "nanotron"
frameworks = ["nanotron"]
products = 0.7351
products8 = 0.9221
products4 = 1.608
attention = 0.3056
attention_backward = 0.3494
memory = 0.7999
newer = 1.077
newer_attention = 0.7794
casts = 0.2211
tp_exposed = 0.4125
cp_exposed = 0.1781
pp_exposed = 0.6604
gather_hidden = 0.6725
reduce_hidden = 0.9981
slowdown = 0.1508
network = 1.022
hop_us = 5.258
launch_us = 71.61
gain = 0.07359
memory_kept = 1.149
memory_part = 1.516

[[program]]
name = "LLMQ"
frameworks = ["llm.q", "llmq", "llm.c"]
products = 1.049
products8 = 0.906
products4 = 1.608
attention = 0.2779
attention_backward = 0.3241
memory = 0.8277
newer = 0.8939
newer_attention = 0.5149
casts = 0.1319
tp_exposed = 0.4125
cp_exposed = 0.1781
pp_exposed = 0.6604
gather_hidden = 0.6725
reduce_hidden = 0.9981
slowdown = 0.3115
network = 1.022
hop_us = 5.258
launch_us = 71.61
gain = 0.1169
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Hugging Face Trainer"
frameworks = ["hf trainer", "transformers"]
products = 0.588
products8 = 0.9221
products4 = 1.608
attention = 0.6313
attention_backward = 0.7218
memory = 0.4006
update = 0.2887
newer = 1.077
newer_attention = 0.7794
casts = 0.2211
tp_exposed = 0.4125
cp_exposed = 0.1781
pp_exposed = 0.6604
gather_hidden = 0.2774
reduce_hidden = 0.9981
slowdown = 0.3115
network = 1.022
hop_us = 5.258
launch_us = 90.39
gain = 0.07359
memory_part = 2.639
memory_base = 2.147e+09

[[program]]
name = "torchtune"
frameworks = ["torchtune"]
products = 0.9556
products8 = 0.9221
products4 = 1.608
attention = 0.3438
attention_backward = 0.3853
memory = 0.7649
update = 1.115
newer = 1.077
newer_attention = 0.7794
casts = 0.2211
tp_exposed = 0.4125
cp_exposed = 0.1781
pp_exposed = 0.6604
gather_hidden = 0.6725
reduce_hidden = 0.9981
slowdown = 0.1508
network = 1.022
hop_us = 5.258
launch_us = 304.1
gain = 0.07359
memory_kept = 0.3789
)";

}  // namespace

const Profiles& Profiles::built_in() {
  static const Profiles all = parse(kProfiles, "the built-in profiles");
  return all;
}

}  // namespace weft
