#include "weft/forecast/profile.h"

namespace weft {
namespace {

// Fitted by `weft plan score published.csv --fit`; docs/planning.md says how well they do.
constexpr const char* kProfiles = R"(
[[program]]
name = "any program"
products = 0.7351
products8 = 0.9137
products4 = 1.58
attention = 0.288
attention_backward = 0.3653
memory = 0.8266
newer = 1.077
newer_attention = 0.7794
casts = 0.21
tp_exposed = 0.4125
cp_exposed = 0.169
pp_exposed = 0.7051
gather_hidden = 0.6846
reduce_hidden = 0.9981
slowdown = 0.1508
network = 1.022
hop_us = 5.148
launch_us = 71.61
gain = 0.07359
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "any program with experts"
experts = true
products = 0.3118
products8 = 0.9137
products4 = 1.58
grouped = 1.3
attention = 0.288
attention_backward = 0.3653
memory = 1.707
newer = 0.8671
newer_attention = 0.7794
casts = 0.21
tp_exposed = 0.4125
ep_exposed = 0.4125
ep_inside = 0.6841
cp_exposed = 0.169
pp_exposed = 0.6741
gather_hidden = 0.6846
reduce_hidden = 0.9981
slowdown = 0.1508
network = 1.022
hop_us = 5.148
launch_us = 85.82
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
products8 = 0.9097
products4 = 1.587
attention = 0.5948
attention_backward = 0.4747
memory = 1.199
newer = 1.03
newer_attention = 0.6703
casts = 0.1897
tp_exposed = 0.418
cp_exposed = 0.07476
pp_exposed = 0.9758
gather_hidden = 0.6846
reduce_hidden = 0.9981
slowdown = 0.2756
network = 1.281
hop_us = 5.148
launch_us = 71.61
action_ms = 0.3368
gain = 0.0529
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-Core with experts"
frameworks = ["megatron-core", "nemo", "megatron-bridge"]
experts = true
products = 0.3707
products8 = 0.9097
products4 = 1.587
grouped = 1.3
attention = 0.5948
attention_backward = 0.4747
memory = 2.191
newer = 0.8113
newer_attention = 0.6703
casts = 0.1897
tp_exposed = 0.418
ep_exposed = 0.4348
ep_inside = 0.7607
cp_exposed = 0.07476
pp_exposed = 0.8536
gather_hidden = 0.6846
reduce_hidden = 0.9981
slowdown = 0.2756
network = 1.281
hop_us = 5.148
launch_us = 87.02
action_ms = 0.3368
gain = 0.0825
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Megatron-DeepSpeed"
frameworks = ["megatron-deepspeed"]
products = 0.7351
products8 = 0.9137
products4 = 1.58
attention = 0.152
attention_backward = 0.2841
memory = 0.5211
newer = 1.077
newer_attention = 0.7794
scores = 1
casts = 0.21
tp_exposed = 0.5467
cp_exposed = 0.169
pp_exposed = 0.5401
gather_hidden = 0.6846
reduce_hidden = 0.9981
slowdown = 0.1508
network = 0.9229
hop_us = 5.148
launch_us = 375.4
gain = 0.0965
memory_kept = 1.32
memory_part = 0.8706
memory_base = 3.221e+09

[[program]]
name = "Megatron-LM of 2021"
frameworks = ["megatron-lm", "alpa"]
products = 0.7817
products8 = 0.9137
products4 = 1.58
attention = 0.1481
attention_backward = 0.2568
memory = 0.6514
update = 1.019
newer = 1.077
newer_attention = 0.7794
scores = 1
casts = 0.21
tp_exposed = 0.1701
cp_exposed = 0.169
pp_exposed = 0.6695
gather_hidden = 1.3
reduce_hidden = 0.9981
slowdown = 0.2073
network = 1.3
hop_us = 3.567
launch_us = 71.61
gain = 0.1041
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "PyTorch FSDP"
frameworks = ["fsdp", "foundry"]
products = 0.8625
products8 = 0.6971
products4 = 1.58
attention = 0.2496
attention_backward = 0.3442
memory = 0.4521
newer = 0.891
newer_attention = 0.6371
casts = 0.21
tp_exposed = 0.4125
cp_exposed = 0.169
pp_exposed = 0.7051
gather_hidden = 0.6675
reduce_hidden = 1.125
slowdown = 0.1677
network = 1.042
hop_us = 91.19
launch_us = 71.61
gain = 0.06804
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "torchtitan"
frameworks = ["torchtitan"]
products = 0.8176
products8 = 0.6343
products4 = 1.58
attention = 0.3017
attention_backward = 0.3585
memory = 0.558
update = 0.2887
newer = 0.7863
newer_attention = 0.6625
casts = 0.3634
tp_exposed = 0.6808
cp_exposed = 0.169
pp_exposed = 0.7051
gather_hidden = 0.6846
reduce_hidden = 0.9981
slowdown = 0.2798
network = 1.188
hop_us = 5.148
launch_us = 71.61
action_ms = 97.82
gain = 0.06025
memory_base = 4.295e+09

[[program]]
name = "InternEvo"
frameworks = ["internevo"]
products = 0.7479
products8 = 0.9137
products4 = 1.58
attention = 0.5548
attention_backward = 0.3675
memory = 0.999
newer = 1.077
newer_attention = 0.7794
casts = 0.21
tp_exposed = 0.852
cp_exposed = 0.169
pp_exposed = 0.7051
gather_hidden = 0.2824
reduce_hidden = 1.255
slowdown = 0.1426
network = 1.022
hop_us = 130.9
launch_us = 71.61
gain = 0.07287
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "nanotron"
frameworks = ["nanotron"]
products = 0.7351
products8 = 0.9137
products4 = 1.58
attention = 0.288
attention_backward = 0.3653
memory = 0.8266
newer = 1.077
newer_attention = 0.7794
casts = 0.21
tp_exposed = 0.4125
cp_exposed = 0.169
pp_exposed = 0.7051
gather_hidden = 0.6846
reduce_hidden = 0.9981
slowdown = 0.1508
network = 1.022
hop_us = 5.148
launch_us = 71.61
gain = 0.07359
memory_kept = 1.149
memory_part = 1.516

[[program]]
name = "LLMQ"
frameworks = ["llm.q", "llmq", "llm.c"]
products = 1.049
products8 = 0.9137
products4 = 1.58
attention = 0.2458
attention_backward = 0.3188
memory = 0.8266
newer = 0.8603
newer_attention = 0.5866
casts = 0.1423
tp_exposed = 0.4125
cp_exposed = 0.169
pp_exposed = 0.7051
gather_hidden = 0.6846
reduce_hidden = 0.9981
slowdown = 0.3115
network = 1.022
hop_us = 5.148
launch_us = 71.61
gain = 0.1169
memory_kept = 1.149
memory_base = 3.221e+09

[[program]]
name = "Hugging Face Trainer"
frameworks = ["hf trainer", "transformers"]
products = 0.588
products8 = 0.9137
products4 = 1.58
attention = 0.5948
attention_backward = 0.7546
memory = 0.414
update = 0.2887
newer = 1.077
newer_attention = 0.7794
casts = 0.21
tp_exposed = 0.4125
cp_exposed = 0.169
pp_exposed = 0.7051
gather_hidden = 0.2824
reduce_hidden = 0.9981
slowdown = 0.3115
network = 1.022
hop_us = 5.148
launch_us = 90.39
gain = 0.07359
memory_part = 2.639
memory_base = 2.147e+09

[[program]]
name = "torchtune"
frameworks = ["torchtune"]
products = 0.9556
products8 = 0.9137
products4 = 1.58
attention = 0.3744
attention_backward = 0.4201
memory = 0.652
update = 1.3
newer = 1.077
newer_attention = 0.7794
casts = 0.21
tp_exposed = 0.4125
cp_exposed = 0.169
pp_exposed = 0.7051
gather_hidden = 0.6846
reduce_hidden = 0.9981
slowdown = 0.1508
network = 1.022
hop_us = 5.148
launch_us = 71.61
action_ms = 6.356
gain = 0.07359
memory_kept = 0.3789
)";

}  // namespace

const Profiles& Profiles::built_in() {
  static const Profiles all = parse(kProfiles, "the built-in profiles");
  return all;
}

}  // namespace weft
